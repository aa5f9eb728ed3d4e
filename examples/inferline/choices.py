"""Which way a post goes."""

from typing import Any


def translated(outputs: dict[str, Any]) -> list[str]:
    """A post that is not in English is translated before its topic is told."""
    return ["classify", "topic" if outputs.get("language", "en") == "en" else "translate"]
