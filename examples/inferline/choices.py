"""Which way a query goes."""

from typing import Any


def translated(outputs: dict[str, Any]) -> list[str]:
    """A post that is not in English is translated before its topic is told."""
    return ["classify", "topic" if outputs.get("language", "en") == "en" else "translate"]


def seen(outputs: dict[str, Any]) -> list[str]:
    """A frame goes on to the models of what was found in it: `vehicle`, `person`, `plate`, or none."""
    return [name for name in ("vehicle", "person", "plate") if outputs.get(name)]


def unsure(outputs: dict[str, Any]) -> list[str]:
    """What the fast model is not sure of goes on to the slow one."""
    return [] if outputs.get("sure", 1.0) >= 0.5 else ["slow"]
