"""Long outcomes become JSON on a thread of their own, so that those of other partitions need not wait for them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from spillway.lineage.headers import json_asked

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.agents.core.outcomes import Release
    from spillway.agents.live.gate.wire import Pairs

LONG: Final = 8 << 10  # bytes of the reports; the gate turns shorter ones into JSON where it writes them
_MOST_WAITING: Final = 64 << 20  # bytes of the reports that wait; above that the gate stops reading
_AT_ONCE: Final = 4  # conversions that are begun: what is made of them is held until their partition's turn


class Conversions:
    """Makes the messages of releases beforehand, where that takes long. For one thread."""

    def __init__(self, message: Callable[[Release], tuple[bytes, Pairs]]) -> None:
        """`message` makes one; it is called on this and on another thread."""
        self._message = message
        self._thread = ThreadPoolExecutor(1, "json")
        self._begun: list[Release] = []
        self._waiting = 0

    @property
    def waiting(self) -> bool:
        """Whether something was not ready when it was last asked for."""
        return self._waiting > 0

    @property
    def room(self) -> bool:
        return self._waiting < _MOST_WAITING

    def look(self) -> None:
        """Begin a look at all that is to leave: `ready` is asked of each."""
        self._waiting = 0
        self._begun = [release for release in self._begun if not release.message.done()]

    def ready(self, release: Release) -> bool:
        """Whether a release's message can be had at once; else it is being made."""
        if release.message is None:
            if release.size <= LONG or not json_asked(release.source.payload.headers):
                return True
            if len(self._begun) < _AT_ONCE:
                release.message = self._thread.submit(self._message, release)
                self._begun.append(release)
        elif release.message.done():
            return True
        self._waiting += release.size
        return False

    def message(self, release: Release) -> tuple[bytes, Pairs]:
        made: tuple[bytes, Pairs] = self._message(release) if release.message is None else release.message.result()
        return made

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
