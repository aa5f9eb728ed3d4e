"""What a long section has measured so far, kept after each of its runs, so that a later command can go on from there.

Rows that are kept count as measured: whoever goes on says that the same code runs on the same machine.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from benchmarks.output import read_section

if TYPE_CHECKING:
    from pathlib import Path


class Progress:
    """The rows of each section, in its folder."""

    def __init__(self, folder: Path, *, go_on: bool) -> None:
        self._folder = folder
        self._go_on = go_on

    def rows(self, section: str) -> list[dict[str, Any]]:
        """What there is to go on from. Raises UsageError for a file that is no result."""
        found = read_section(self._folder, section) if self._go_on else None
        return list(found["rows"]) if found is not None else []

    def keep(self, section: str, rows: list[dict[str, Any]]) -> None:
        """Write down what there is; whoever is killed while it is written leaves what was there before."""
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / f"{section}.json"
        beside = file.with_suffix(".json.new")
        beside.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")
        beside.replace(file)
