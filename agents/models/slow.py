"""Models that take long to come up are named while they do, with the line that they are at."""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOW_SECONDS: Final = 30.0
SLOW: Final = "it is being imported and constructed"  # how it is said


@contextmanager
def named_if_slow(place: str) -> Iterator[None]:
    """Say on stderr what takes long, once, if the context lasts longer than `SLOW_SECONDS`; `place` begins it."""
    timer = threading.Timer(SLOW_SECONDS, _tell, (place, threading.get_ident()))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _tell(place: str, thread: int) -> None:
    frame = sys._current_frames().get(thread)  # noqa: SLF001 - there is no other way to see where a thread is
    at = "" if frame is None else f", and is at {frame.f_code.co_filename}:{frame.f_lineno}"
    print(f"spillway: {place}: {SLOW} for {SLOW_SECONDS:g} s so far{at}", file=sys.stderr, flush=True)
