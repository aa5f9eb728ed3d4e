"""A reign's versions on their way to the log: from the core's orders to `StateWriter`'s.

A `StateWriter` looks for its cluster when it is made, which takes some milliseconds. No promotion waits for that: it is
made off the loop, and what is ordered meanwhile waits here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from checkpoint.layout import CHUNK_BYTES
from lineage.replication import Manifest

if TYPE_CHECKING:
    from collections.abc import Callable

    from agents.live.state_metrics import StateFigures
    from agents.live.states.state_writer import StateWriter
    from checkpoint.capture import Captured
    from checkpoint.orders import Write
    from checkpoint.versions import History
    from lineage.marks import Version
    from lineage.replication import Output

log = logging.getLogger(__name__)

# Seconds for which tombstones gather: two records of each small version, each of which wakes all who read the logs.
_TIDY_SECONDS = 0.5


class _Nothing:
    """A copy of nothing: of a mode that logs, before the first copy, a version is its batches alone.

    What is too large for a manifest is spilled in pieces of `chunk_bytes`, batches too, so these are of the usual size.
    """

    entries = ()
    values: dict[str, Any] = {}  # noqa: RUF012 - empty for ever
    blocks = ()
    pages = ()
    chunk_bytes = CHUNK_BYTES
    own_bytes = 0


_NOTHING: Any = _Nothing()


class VersionWriter:
    """Writes the versions of one epoch. All methods are the loop's."""

    def __init__(
        self,
        make: Callable[[Callable[[Manifest], object]], StateWriter],
        *,
        claimant: str,
        history: Callable[[], History],
        completed: Callable[[Version], None],
        figures: StateFigures | None,
        crashed: Callable[[BaseException], None],
        logs: bool,
        release: Callable[[Captured], None],
    ) -> None:
        """`make` makes the writer, off the loop, from what it calls for each complete version.

        `history`: of the shard, as the logs have it; it has this epoch's base. `completed` is called on the loop.
        `logs`: versions without a copy name the chunks of the newest copy again (`checkpoint.modes`); `release` is then
        given the copies that none names any more. In other modes the reign says what is released.
        """
        self._claimant = claimant
        self._history = history
        self._done = completed
        self._crashed = crashed
        self._figures = figures
        self._writer: StateWriter | None = None
        self._waiting: list[Callable[[StateWriter], object]] = []
        self._durable: Version | None = None
        self._tidying: asyncio.TimerHandle | None = None
        self._logs = logs
        self._copy: Captured = _NOTHING
        self._let_go: list[Captured] = []  # of a mode that logs: copies that no version will name any more
        self._release = release
        self._closed = False
        self.written = 0  # versions
        self.written_bytes = 0
        self.state_bytes = 0
        self._making = asyncio.get_running_loop().create_task(self._make(make))

    async def _make(self, make: Callable[[Callable[[Manifest], object]], StateWriter]) -> None:
        try:
            writer = await asyncio.to_thread(make, self._completed)
        except Exception as error:  # noqa: BLE001 - whatever it is, no version would ever be durable
            self._crashed(error)
            return
        if self._closed:
            await asyncio.to_thread(writer.close)
            return
        self._writer = writer
        for order in self._waiting:
            order(writer)
        self._waiting.clear()

    @property
    def acked_bytes(self) -> int:
        """What the broker has of what was sent so far; from any thread."""
        writer = self._writer
        return 0 if writer is None else writer.acked_bytes

    def write(self, order: Write[Captured], outputs: tuple[Output, ...]) -> None:
        manifest = Manifest(
            order.version, self._history().links, order.requires, self._claimant, at_us=time.time_ns() // 1000
        )
        later = order.version.n - order.state_n
        pieces: dict[str, Any] = {
            "batches": order.batches, "inputs": order.inputs, "outputs": outputs, "later": later
        }  # fmt: skip
        if order.what is not None:
            if self._logs and self._copy is not _NOTHING:
                self._let_go.append(self._copy)
            self._copy = order.what
        copy = self._copy
        self._tell(lambda writer: writer.write(copy, manifest, **pieces))

    def seal(self, version: Version) -> None:
        self._tell(lambda writer: writer.outputs_acked(version))

    def durable(self, version: Version) -> None:
        """Note the newest durable version of this epoch: what is older may be tombstoned, and is before long."""
        if self._durable is None or version.n > self._durable.n:
            self._durable = version
            if self._tidying is None and not self._closed:
                self._tidying = asyncio.get_running_loop().call_later(_TIDY_SECONDS, self._tidy)

    def _tidy(self) -> None:
        self._tidying = None
        version, history = self._durable, self._history()
        if version is not None:
            self._tell(lambda writer: writer.durable(version, history))

    def close(self) -> None:
        self._closed = True
        self._waiting.clear()
        if self._tidying is not None:
            self._tidying.cancel()
        writer, self._writer = self._writer, None
        if writer is not None:
            asyncio.get_running_loop().run_in_executor(None, writer.close)

    def _completed(self, manifest: Manifest) -> None:
        if self._closed:
            return
        self.written += 1
        self.written_bytes += manifest.written_bytes
        if self._figures is not None:
            self._figures.written += manifest.written_bytes
        self.state_bytes = manifest.state_bytes
        let_go, self._let_go = self._let_go, []
        for copy in let_go:
            self._release(copy)
        self._done(manifest.version)

    def _tell(self, order: Callable[[StateWriter], object]) -> None:
        if self._closed:
            return
        if self._writer is None:
            self._waiting.append(order)
        else:
            order(self._writer)
