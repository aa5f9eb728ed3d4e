"""What sections have measured, in a folder: kept after each run of a long one, so that a later command can go on.

Rows that are kept count as measured: whoever goes on says that the same code runs on the same machine.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from spillway.lineage.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


class Progress:
    """The results of each section, in its folder."""

    def __init__(self, folder: Path, *, go_on: bool) -> None:
        self._folder = folder
        self._go_on = go_on

    def rows(self, section: str) -> list[dict[str, Any]]:
        """What there is to go on from. Raises UsageError for a file that is no result."""
        found = self.read(section) if self._go_on else None
        return list(found["rows"]) if found is not None else []

    def read(self, section: str) -> dict[str, Any] | None:
        """Read what a section measured; None where it did not. Raises UsageError for a file that is no result."""
        file = self._folder / f"{section}.json"
        if not file.is_file():
            return None
        try:
            return dict(json.loads(file.read_text(encoding="utf-8")))
        except ValueError as error:
            raise UsageError(f"{file} is no result of this command ({error}): measure the section anew") from error

    def keep(self, section: str, rows: list[dict[str, Any]]) -> None:
        """Write down what rows there are so far."""
        self.write(section, {"rows": rows})

    def write(self, section: str, result: dict[str, Any]) -> None:
        """Write a result; whoever is killed while it is written leaves what was there before."""
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / f"{section}.json"
        beside = file.with_suffix(".json.new")
        beside.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        beside.replace(file)
