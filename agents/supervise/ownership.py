"""What this process owns of a pipeline: claimed in `<p>.owners` before anything starts, kept until all has ended.

The decisions are `spillway.checkpoint.owners`'. Here are the log, the clocks, and what is known of processes of this
machine.
"""

from __future__ import annotations

import logging
import math
import os
import platform
import threading
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spillway.agents.live.states.sending import Sending
from spillway.agents.live.states.worker import Mailbox
from spillway.agents.supervise.registry import is_alive
from spillway.checkpoint import owners
from spillway.checkpoint.owners import Candidate, Leave, Owner, Tenure
from spillway.lineage.errors import (
    BrokerError,
    CheckpointError,
    SpillwayError,
    UsageError,
)
from spillway.producers.kafka.log import ALONE, KafkaLog
from spillway.topology import topics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from spillway.checkpoint.owners import Claim, Word
    from spillway.lineage.ports import Record
    from spillway.producers.connection import ClientSettings

log = logging.getLogger(__name__)

_POLL: Final = 0.05  # seconds of a wait
_REST: Final = 0.5  # seconds of one while nothing is under way: words that come, and calls, end it
_PATIENT: Final = 2.0  # who is there answers sooner
_AGAIN: Final = 1.0  # after the log could not be read or written
_LEAVE_SECONDS: Final = 5.0


class OwnedError(UsageError):
    """Somebody else, by this claim, runs a process that was to be started here."""

    def __init__(self, text: str, claim: Claim) -> None:
        super().__init__(text)
        self.claim = claim


class TakenOverError(SpillwayError):
    """Somebody else runs, from now on, what was run here."""


@dataclass(slots=True, eq=False)
class _Wish:
    """To know that nobody has taken over until now."""

    then: Callable[[], object]
    asked_at: float = -math.inf
    read: bool = False  # the log, to the end that it had then

    def reached(self, _end: int) -> None:
        self.read = True


class Ownership:
    """The processes `names` of a pipeline. In this order: `claim`, `keep`, `leave`; or just `leave`."""

    def __init__(
        self,
        settings: ClientSettings,
        pipeline: str,
        names: Iterable[str],
        *,
        take_over: bool = False,
        say: Callable[[str], object] = log.info,
    ) -> None:
        """Connect. Raises BrokerError where there is no cluster. `say` is told, in a sentence, whom it waits for."""
        self._settings = settings
        self._pipeline = pipeline
        self._names = tuple(names)
        self._take_over = take_over
        self._say = say
        self._me = Owner(platform.node(), os.getpid(), time.time(), _machine())
        self._slot = (topics.owners(pipeline), 0)
        self._position = 0  # up to where words were taken
        self._tenure: Tenure | None = None
        self._rest: list[Word] = []  # read, and not taken yet
        self._appended: set[str] = set()  # keys of what is of no use any more when this ends
        self._came: list[Word] = []
        self._wishes: list[_Wish] = []
        self._inbox = Mailbox()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._sending = Sending(settings, self._slot[0])
        self._log = KafkaLog(settings, ALONE).through(self._inbox.post)
        self._following = self._log.follow(
            *(self._slot, None, self._accept),
            trouble=lambda error: log.error("cannot follow %s: %s; trying again", self._slot[0], error),
        )

    @property
    def epoch(self) -> int:
        """Of the claim that was won; 0 before."""
        return 0 if self._tenure is None else self._tenure.claim.epoch

    def claim(self, stopping: Callable[[], bool] = bool, above: int = 0) -> bool:
        """Own the processes, in a higher epoch than `above`; False if `stopping()` came first.

        Raises OwnedError where another one owns any of them and is there, BrokerError where the log is not.
        """
        candidate = Candidate(self._me, self._names, gone, take_over=self._take_over)
        candidate.above = above
        ends: list[int] = []
        self._following.when_read(ends.append)
        begun, told = time.monotonic(), ""
        while candidate.won is None:
            if stopping():
                return False
            now = time.monotonic()
            if ends and self._position >= ends[0] and (word := candidate.next(now, time.time())) is not None:
                self._append(word)
                ends = [self._position + 1]  # at least: it is read back
            if candidate.refused is not None:
                raise OwnedError(self._refusal(candidate.refused), candidate.refused)
            if self._take_over or now - begun > _PATIENT:
                told = self._tell(candidate.in_the_way(now), told)
            for read in self._read():
                (candidate.take if candidate.won is None else self._rest.append)(read)
            self._sending.serve(0)
        self._tenure = Tenure(candidate.won, candidate.owners)
        return True

    def keep(self, on_end: Callable[[], object], stopping: Callable[[], bool] = bool) -> None:
        """Answer whoever asks, in a thread, until `leave`. `on_end` is called there once: another one takes over.

        `stopping`: whether the processes are being stopped, so that whoever comes need not be refused.
        """
        self._thread = threading.Thread(target=self._keep, args=(on_end, stopping), name="ownership", daemon=True)
        self._thread.start()

    def confirm(self, then: Callable[[], object]) -> None:
        """Have `then` called, in the thread that keeps, when it is known that nobody has taken over until now."""
        self._wishes.append(_Wish(then))
        self._inbox.post(bool)  # ends its rest

    def leave(self) -> None:
        self._ended.set()
        self._inbox.post(bool)
        if self._thread is not None:
            self._thread.join()
        try:
            self._last_words()
        except BrokerError as error:
            log.warning(
                "could not leave %s: %s; the next process to serve it must wait until the claim expires",
                self._slot[0],
                error,
            )
        self._log.shut()

    def require(self) -> None:
        """Raise TakenOverError where another one has taken over, or asked to."""
        by = self._successor()
        if by is not None:
            raise TakenOverError(f"{self._what()} was taken over by {by.name}")

    # Inside ----------------------------------------------------------------------------------------------------

    def _keep(self, on_end: Callable[[], object], stopping: Callable[[], bool]) -> None:
        told = False
        while not self._ended.is_set():
            try:
                self._round(stopping)
            except BrokerError as error:
                log.error("cannot write to %s: %s; trying again", self._slot[0], error)  # noqa: TRY400 - it says it all
                self._ended.wait(_AGAIN)
                self._reconnect()
            except Exception:  # else nobody would hear that another takes over
                log.exception("cannot follow %s; trying again", self._slot[0])
                self._ended.wait(_AGAIN)
            by = self._successor()
            if by is not None and not told:
                told = True
                self._say(f"{self._what()} is taken over by {by.name}: stopping here")
                on_end()

    def _round(self, stopping: Callable[[], bool]) -> None:
        tenure = self._tenure
        assert tenure is not None  # it was claimed
        self._rest = self._rest or self._read(_POLL if self._wishes or self._sending.in_flight else _REST)
        tenure.leaving = tenure.leaving or stopping()  # as it is now: reading has waited
        while self._rest:  # what comes behind an answer that cannot be written is taken in the next round
            self._append(tenure.take(self._rest.pop(0)))
        self._sending.serve(0)
        for wish in tuple(self._wishes):
            if wish.read and self._successor() is None:
                self._wishes.remove(wish)
                wish.then()
            elif time.monotonic() - wish.asked_at >= _AGAIN:  # what was asked in trouble is not answered
                wish.asked_at = time.monotonic()
                self._following.when_read(wish.reached)

    def _reconnect(self) -> None:
        try:
            self._sending = Sending(self._settings, self._slot[0])
        except BrokerError as error:
            log.warning("%s", error)

    def _successor(self) -> Owner | None:
        return None if self._tenure is None else self._tenure.lost_to or self._tenure.asked_by

    def _read(self, within: float = _POLL) -> list[Word]:
        """Return the words that have come, after a while."""
        self._inbox.deliver(within)
        came, self._came = self._came, []
        self._position = max(self._position, self._following.position)
        return came

    def _accept(self, records: Sequence[Record]) -> None:
        self._came += words_in(record for record in records if record.offset >= self._position)  # else read before

    def _append(self, word: Word | None) -> None:
        if word is None:
            return
        if not isinstance(word, (owners.Claim, Leave)):
            self._appended.add(word.key)
        self._sending.send(*self._slot, word.key.encode(), owners.encode(word))
        self._sending.serve(0)

    def _last_words(self) -> None:
        until = time.monotonic() + _LEAVE_SECONDS
        if self._tenure is not None:
            self._append(Leave(self._tenure.claim.epoch))
        for key in self._appended:
            self._sending.send(*self._slot, key.encode(), None)
        while self._sending.in_flight and time.monotonic() < until:
            self._sending.serve(_POLL)

    def _tell(self, others: Sequence[Claim], told: str) -> str:
        """Say for whom it waits, once for each text."""
        if not others:
            return told
        names = ", ".join(claim.owner.name for claim in others)
        text = f"{self._what()} is owned by {names}: " + (
            "asking it to stop, and waiting" if self._take_over else "checking whether it is still running"
        )
        if text != told:
            self._say(text)
        return text

    def _what(self) -> str:
        return self._pipeline if len(self._names) > 1 else f"{self._names[0]} of {self._pipeline}"

    def _refusal(self, claim: Claim) -> str:
        since = datetime.fromtimestamp(claim.at).astimezone()
        return (
            f"{self._what()} is already served by {claim.owner.name} since {since:%Y-%m-%d %H:%M:%S %z}: stop that "
            "process, or start this one with --take-over, which ends it"
        )


def words_in(records: Iterable[Record]) -> Iterator[Word]:
    """What the records of the log say, without the tombstones; one that cannot be read is logged."""
    for record in records:
        if record.value is not None:
            try:
                yield owners.decode(record.key, record.value)
            except CheckpointError as error:
                log.warning("%s offset %d is ignored: %s", record.topic, record.offset, error)


def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:  # no Linux
        return platform.node()


def gone(owner: Owner) -> bool:
    """Whether a process is known to have ended, which is known of this machine's alone."""
    return owner.machine == _machine() and not is_alive(owner.pid, owner.started)
