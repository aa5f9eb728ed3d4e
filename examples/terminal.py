"""How a demonstration is run from a terminal: its title, how it ends, and what everything that it started comes to.

A machine that is short of processor time spoils latencies, and nobody sees why. So it is measured how late a thread
that does nothing is woken, and by that alone a demonstration says that its figures are of a busy machine.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Self

from rich.console import Console

from spillway.lineage.errors import SpillwayError

if TYPE_CHECKING:
    from collections.abc import Callable

BUSY: Final = 0.01  # seconds; two of the interpreter's own switches between threads, which are late on any machine
_STEP: Final = 0.02
_SHARE: Final = 0.9


class Wakeups:
    """How late a thread of this process is woken, from entering to leaving."""

    def __init__(self) -> None:
        self._late: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="wakeups", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        due = time.monotonic() + _STEP
        while not self._stop.wait(due - time.monotonic()):
            now = time.monotonic()
            self._late.append(now - due)
            due = now + _STEP

    @property
    def late(self) -> float:
        """Seconds that nine of ten wakeups were late by at most."""
        late = sorted(self._late)
        return late[int(_SHARE * len(late))] if late else 0.0


def shown(title: str, run: Callable[[Console, ExitStack], bool]) -> int:
    """Run a demonstration; its exit code: 0 where `run` says that all was well. What it started ends with it."""
    console = Console(highlight=False)
    console.print(f"[bold]Spillway[/]: {title}\n")
    try:
        with Wakeups() as wakeups, ExitStack() as stack:
            good = run(console, stack)
    except SpillwayError as error:
        console.print(f"error: {error}", markup=False, style="red")
        return error.exit_code
    except KeyboardInterrupt:
        console.print("interrupted; everything that was started has ended")
        return 130
    if wakeups.late > BUSY:
        console.print(
            f"This machine is busy: a tenth of all wakeups came over {1e3 * wakeups.late:.0f} ms late. The figures are "
            "of a busy machine; on a quiet one they are better.",
            soft_wrap=True,
        )
    return 0 if good else 1
