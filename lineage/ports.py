"""What a driver may ask of the world, and what the world promises it.

A driver is asyncio code: it moves records between ports and a decision core, and knows neither Kafka nor a clock. A
port has two worlds behind it, Kafka and memory. tests/integration/contract holds both to what `Log`, `Input`,
`PulledInput`, `Output`, `Transactions` and `Spans` promise.

Of all ports:

* Calls are made on the driver's loop, and so are a port's calls of the driver.
* A call that waits is a coroutine, and may be cancelled. Whether what it asked for took place is not known then.
* A port raises `BrokerError` where time does not heal what is wrong; what time heals it waits for.
* Offsets grow within a partition, with gaps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence

    from spillway.lineage.errors import BrokerError

Slot = tuple[str, int]  # a topic and a partition of it
Headers = tuple[tuple[Any, bytes | None], ...]  # in order; a key that is no UTF-8 is bytes, others are str
UNREADABLE: Headers = ((b"\xff", None),)  # of a record whose reader could not tell the headers, where that matters


@dataclass(slots=True)
class Record:
    """A record as it lies in a partition of a topic."""

    topic: str
    partition: int
    offset: int
    timestamp: int  # unix milliseconds: of its append where `log_append`, else what its sender has said
    log_append: bool
    key: bytes | None
    value: bytes | None
    headers: Headers
    stripped: bool = False  # whether it had a value that was not kept


class Outgoing(NamedTuple):
    """A record to be written."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[Any, bytes | None]] = ()


class Since(NamedTuple):
    """Where to begin: at the first record of a time (unix seconds) or later."""

    at: float


class Bounds(NamedTuple):
    """A partition's log: its first offset, and the offset after its last record."""

    start: int
    end: int


class Commit(NamedTuple):
    """What to commit for one partition: the next offset to read, and a note for whoever reads on from there."""

    offset: int
    metadata: str


class Clock(Protocol):
    """Two clocks of this process's host."""

    def now(self) -> float:
        """Return unix seconds, which never go back within a process. Other hosts' may differ."""
        ...

    def monotonic(self) -> float:
        """Return seconds since some moment, for ages and waits."""
        ...


class Owner(Protocol):
    """Whom an `Input` serves: a stage's replica. The world calls it."""

    def commits(self) -> Mapping[int, Commit]:
        """Return what may be committed now, by partition. What was committed before need not be repeated."""
        ...

    def committed(self, offsets: Mapping[int, Commit]) -> None:
        """Learn that these were committed."""
        ...

    async def assigned(self, partitions: frozenset[int]) -> Mapping[int, int]:
        """Take over exactly these partitions, and return where each is read on; one that is missing is not read.

        No record of this assignment has been delivered yet, and none of an earlier one will be.
        """
        ...

    async def revoked(self) -> None:
        """Release all partitions. Nothing is delivered until it returns.

        What `commits` returns then is committed yet, where the input asks for it; nothing is after that.
        """
        ...

    async def accept(self, records: Mapping[int, Sequence[Record]]) -> None:
        """Take a chunk of one assignment: records by partition, in offset order. The next comes when it returns."""
        ...

    def out_of_range(self, partition: int, position: int, bounds: Bounds) -> int | None:
        """Judge a partition whose log lacks its position: return where it is read on, None to have it stand still."""
        ...

    def crashed(self, error: BaseException) -> None:
        """Learn that the input cannot go on. The process must end."""
        ...


class Input(Protocol):
    """A stage's input: one topic, read as a static member of a group.

    * Each partition is read from where `assigned` said, in order, nothing left out that the log has.
    * A commit of an earlier assignment does not land in a later one. A commit that was under way when partitions were
      revoked has landed or been refused before the next owner reads the committed offset.
    * A member that restarts within its session gets its partitions back, and nobody else reads them meanwhile.
    * A member whose session has ended learns it by `revoked`, or by a commit that is refused.
    * Nothing is reset of its own accord: a position that the log lacks is judged by the owner.
    """

    async def commit(self, offsets: Mapping[int, Commit]) -> bool:
        """Commit; False where it did not come about, or these partitions are not this member's any more."""
        ...

    async def positions(self, partitions: Iterable[int]) -> Mapping[int, Commit]:
        """Return what is committed, with its notes; a partition without is missing."""
        ...

    async def bounds(self, partitions: Iterable[int]) -> Mapping[int, Bounds]: ...

    async def close(self, *, leave: bool) -> None:
        """End reading. `leave`: for good, so that the partitions move on at once, not when the session ends."""
        ...


class PulledOwner(Protocol):
    """Whom a `PulledInput` serves: a gate. The world calls it, and only within a call of `take` or `close`."""

    async def assigned(self, partitions: frozenset[int]) -> Mapping[int, int]:
        """Take over these partitions beside what it has, and return where each is read; one that is missing is not."""
        ...

    async def revoked(self, partitions: frozenset[int]) -> None:
        """Release these. They move on when this returns, or have moved on already."""
        ...

    def out_of_range(self, partition: int, position: int, bounds: Bounds) -> int | None:
        """Judge a partition whose log lacks its position: return where it is read on, None to have it stand still."""
        ...


class PulledInput(Protocol):
    """An input whose owner asks for each record: one topic, read as a static member of a group.

    * Partitions come and go only while the owner waits in `take`: between two calls nothing of its own moves.
    * Each is read from where `assigned`, or `read_on`, said: in order, and nothing left out that the log has. After
      `revoked` nothing comes of it, until it is assigned anew.
    * A partition that is assigned is not paused, whatever was before.
    * A member that restarts within its session gets its partitions back, and nobody else reads them meanwhile.
    * Nothing is reset of its own accord: a position that the log lacks is judged by the owner.
    """

    async def join(self, owner: PulledOwner) -> None:
        """Become a member of the group; after OustedError anew, with nothing of what it had."""
        ...

    async def take(self, most: int, within: float) -> Sequence[Record]:
        """Return up to so many records, as soon as there is one; none where there is none within so many seconds.

        Raises OustedError where the group has another member under this one's name.
        """
        ...

    def pause(self) -> None:
        """Take nothing of what is read now until `resume`. What is assigned later has to be paused anew."""
        ...

    def resume(self) -> None: ...

    async def read_on(self, starts: Mapping[int, int]) -> None:
        """Read these partitions, which are this member's, from there on; what else it read is not read any more."""
        ...

    async def positions(self, partitions: Iterable[int]) -> Mapping[int, Commit]:
        """Return what is committed, with its notes, as of when no transaction was moving it; one without is missing.

        Raises OustedError where the group does not answer this member, as it may answer another one.
        """
        ...

    async def close(self, *, leave: bool) -> None:
        """End reading. `leave`: for good, so that the partitions move on at once, not when the session ends."""
        ...


class Output(Protocol):
    """A producer that repeats nothing and leaves nothing out.

    Of one partition a record is stored after all that was sent to it before, once; or it and all after it are lost, of
    which `lost` tells, once. The process must end then.
    """

    @property
    def room(self) -> bool:
        """Whether more may be sent. Where it is False, take no input until something was stored."""
        ...

    def send(self, record: Outgoing, token: object, *, vital: bool = True) -> None:
        """Send; `stored` is called with the token when the broker has the record.

        One that is not `vital` may get lost alone: its token comes back all the same.
        """
        ...

    def hurry(self) -> None:
        """Call `stored` for the records that the broker has by now, and soon for the next ones: somebody waits."""
        ...

    async def close(self) -> None:
        """Wait for what is under way."""
        ...


class Transactions(Protocol):
    """Writes records and an input's offsets together, under one id.

    * `open` fences every earlier holder of the id and aborts what it left open.
    * Readers of what is committed see all of a transaction or nothing, it may be a moment after `write` has returned.
      One that is neither committed nor aborted ends aborted, by a later `open` or by its time-out.
    * Offsets are refused from a group's member that is not its member any more, and the transaction with them.
    """

    async def open(self) -> None: ...

    async def write(self, records: Sequence[Outgoing], offsets: Mapping[int, Commit]) -> list[tuple[int, int]]:
        """Write both; return each record's offset and append time (unix ms).

        Raises AbortedError where nothing of it stands, FencedError where another one has the id, and SilentError where
        it is not known whether it stands, until `open` has ended it one way or the other.
        """
        ...

    async def hold(self, topic: str) -> None:
        """Make sure that the id is still this holder's, by something that is written to a topic and taken back.

        Raises FencedError where another one has it.
        """
        ...


class Log(Protocol):
    """Reads partitions in no group, each from an offset: the one follower.

    What it follows comes in the order of the log; of a compacted log records may be missing, never the newest of a key.
    Reading much of one partition keeps nobody else waiting for more than 50 ms.
    """

    def follow(
        self,
        slot: Slot,
        start: int | Since | None,
        accept: Callable[[Sequence[Record]], object],
        *,
        cut: Callable[[Bounds], object] | None = None,
        trouble: Callable[[BrokerError], object] | None = None,
    ) -> Following:
        """Pass to `accept` the records of a partition from `start` on, and what is written later.

        One that is followed twice comes twice.

        `start`: None for where the log begins. `cut` is called where the log lacks what is to be read next, which then
        stands still; without it that is a trouble.
        `trouble` is called with what keeps the partition from being read: an UnreachableError or a TopicError, which
        time may heal, or another BrokerError, as CorruptError, which it does not. Reading goes on when it can.
        """
        ...

    async def close(self) -> None: ...


class Following(Protocol):
    """One partition that is followed."""

    position: int  # up to where it was read: what lies before was accepted, or is not in the log

    def when_read(self, then: Callable[[int], object]) -> None:
        """Call `then` with the offset of the partition's end when all was accepted that it has when this is called.

        It is called with the position where this is stopped, and never where the partition cannot be read.
        """
        ...

    def pause(self) -> None:
        """Request nothing more until `resume`; what was requested may still come."""
        ...

    def resume(self) -> None:
        """Follow again, from where it was read to."""
        ...

    def stop(self) -> None:
        """Accept nothing more."""
        ...


class Spans(Protocol):
    """Reads stretches of logs again, whose offsets are known; committed records alone."""

    async def bounds(self, topic: str, partitions: Iterable[int]) -> Mapping[int, Bounds]:
        """Return where each partition's log begins and ends, records of open transactions counted in."""
        ...

    def read(self, topic: str, spans: Mapping[int, Bounds], *, values: bool = True) -> AsyncIterator[Sequence[Record]]:
        """Yield what the logs have in these stretches, in order within a partition. Without `values`, none has one.

        Raises BrokerError where an end is not reached in time, as while a transaction is open below it.
        """
        ...

    async def pick(self, topic: str, places: Iterable[tuple[int, int]]) -> Mapping[tuple[int, int], Record]:
        """Return single records by (partition, offset). One that is gone is missing."""
        ...

    async def close(self) -> None: ...


class Executor(Protocol):
    """Runs functions off the loop, one at a time, in the order in which they were given."""

    def run(self, function: Callable[[], Any]) -> Awaitable[Any]:
        """Return what the function returns. It runs to its end even where nobody waits for it any more."""
        ...


class Work(Protocol):
    """What was begun elsewhere, for who looks after it now and then: a future of asyncio's, or of a thread's."""

    def done(self) -> bool: ...

    def result(self) -> Any: ...
