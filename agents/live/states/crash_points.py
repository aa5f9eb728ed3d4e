"""Places at which a process can be made to die or to wait, for tests of recovery; else they do nothing.

`arm("before-manifest:3")` makes the process end at the third time that it comes by that point: by SIGKILL, so that no
handler, no flush and no thread of it does anything more. One point can be armed in a process, and at one `hold` makes
whoever comes by wait while a file is there. What stands at a point is `at("before-manifest")`, which compares with None
where none is armed.

* compute, capture, outputs, renewal, claim, fence: before and after that step, as whoever takes it calls it.
* chunks: before the first is made; amid them, before each further one; after all of a version are acknowledged.
* manifest: before it is handed over, when all that it stands for is acknowledged; after, when it may or may not arrive.
* ack (of the manifest): before anybody here is told of it; after.
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Final

from lineage.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

STEPS: Final = ("compute", "capture", "chunks", "outputs", "manifest", "ack", "renewal", "claim", "fence")
NAMES: Final = frozenset({f"{when}-{step}" for when in ("before", "after") for step in STEPS} | {"amid-chunks"})
_HELD_SECONDS: Final = 0.005  # between two looks at the file


class _Armed:
    """The point that is armed, and how often it is still passed by."""

    def __init__(self, name: str, count: int) -> None:
        self.name = name
        self.count = count

    def come_by(self, name: str) -> None:
        if name != self.name:
            return
        self.count -= 1
        if self.count <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


class _Held:
    """The point that is held, and by which file."""

    def __init__(self, name: str, file: Path) -> None:
        self.name = name
        self.file = file

    def come_by(self, name: str) -> None:
        while name == self.name and self.file.exists():
            time.sleep(_HELD_SECONDS)


_armed: _Armed | None = None
_held: _Held | None = None


def arm(text: str) -> None:
    """Arm `NAME` or `NAME:COUNT`; an empty text disarms. Raises UsageError for a point that there is not."""
    global _armed  # noqa: PLW0603 - a process dies once
    if not text:
        _armed = None
        return
    name, colon, count = text.partition(":")
    _check(name)
    if colon and not (count.isascii() and count.isdigit() and int(count)):
        raise UsageError(f"{text!r:.60} must be NAME or NAME:COUNT, where the count is 1 or more")
    _armed = _Armed(name, int(count or 1))


def hold(name: str, file: Path | None) -> None:
    """Have the thread that comes by a point wait while `file` is there; None: no longer.

    For points of chunks and manifests, which a thread of their own comes by. Raises UsageError as `arm` does.
    """
    global _held  # noqa: PLW0603 - as above
    _check(name)
    _held = None if file is None else _Held(name, file)


def at(name: str) -> None:
    if _armed is not None:
        _armed.come_by(name)
    if _held is not None:
        _held.come_by(name)


def _check(name: str) -> None:
    if name not in NAMES:
        raise UsageError(f"there is no crash point {name!r:.60}: use one of {', '.join(sorted(NAMES))}")
