"""One offline job: sends its queries in chunks, pauses for online ones, writes a row for each (INFaaS, section 3.2).

A query is an ordinary one with the header `x-priority: offline`. Its id is `<job>-<row>-<attempt>`, so whoever goes on
after a crash asks what was under way under the same ids, and hears outcomes that came meanwhile from the egress: no row
is asked twice for a crash of the job's process. A query that found no spare time is asked again, as the next attempt;
so is one without an outcome in `OUTCOME_SECONDS`, a few times, which may run twice then.
"""

from __future__ import annotations

import queue
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from spillway.lineage import reasons
from spillway.lineage.errors import UsageError, WireError
from spillway.lineage.headers import OFFLINE, PRIORITY
from spillway.lineage.message import DROPPED, FAILED, PREDICTION
from spillway.lineage.values.json_text import show_value
from spillway.producers.offline.files import UNFIT, Inputs, Outputs, error_row, words_of
from spillway.producers.offline.listening import Released, Words
from spillway.producers.offline.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from concurrent.futures import Future
    from pathlib import Path

    from spillway.lineage.limits import Limits
    from spillway.lineage.message import Outcome, Value
    from spillway.producers.connection import ClientSettings
    from spillway.producers.offline.files import Row

CHUNK: Final = 64
OUTCOME_SECONDS: Final = 540.0  # less than the ten minutes within which an id is the same query
_HEADERS: Final = {PRIORITY: OFFLINE.decode()}
_ATTEMPTS: Final = 3  # without an outcome
_AGAIN: Final = 1.0  # seconds after which one that was handed back is asked again
_POLL: Final = 0.1
_NOTED: Final = 1.0  # seconds between two notes of since when outcomes may have come
_SKEW: Final = 10.0  # seconds by which the broker's clock may be behind
_WHY: Final = "why"  # the flag of a stage with variants that a row leaves out


@dataclass(slots=True)
class Progress:
    """How far a job is."""

    rows: int
    """Of the inputs."""
    written: int = 0
    """Of them, those whose row is written; `before` of them when this process began."""
    before: int = 0
    errors: int = 0
    """Of those that this process wrote, the rows with an error."""
    handed_back: int = 0
    """Queries that found no spare time, and were asked again."""
    under_way: int = 0
    paused: str = ""
    """Why nothing more is sent now; empty where the job goes on."""
    paused_seconds: float = 0.0

    @property
    def done(self) -> bool:
        return self.written == self.rows


@dataclass(slots=True)
class _Asked:
    row: int
    inputs: Row
    attempt: int
    at: float = 0.0  # when it was sent, unix seconds; 0: it is to be sent
    not_before: float = 0.0  # when it is asked again, by the monotonic clock
    lost: int = 0  # attempts without an outcome
    answer: dict[str, Any] | None = None


class Job:
    """Runs one job to its end."""

    def __init__(
        self,
        pipeline: str,
        settings: ClientSettings,
        limits: Limits,
        submit: Callable[..., Future[Outcome]],
        *,
        parameters: Mapping[str, Value],
        chunk: int = CHUNK,
        progress: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        """`progress` hears every tenth of a second, on the caller's thread."""
        self._pipeline, self._settings, self._limits = pipeline, settings, limits
        self._submit = submit
        self._parameters = parameters
        self._chunk = chunk
        self._tell = progress
        self._pace = Pace()
        self._asked: dict[int, _Asked] = {}  # the rows that are not written, from the next one on
        self._ended: queue.SimpleQueue[tuple[_Asked, int, Future[Outcome]]] = queue.SimpleQueue()
        self._noted = self._told = float("-inf")

    def run(self, inputs_file: Path, outputs_file: Path) -> Progress:
        """Raises UsageError for files that cannot be used; BrokerError where the cluster is away, and one may go on."""
        inputs = Inputs(inputs_file)
        asks = {"pipeline": self._pipeline, "parameters": dict(self._parameters)}
        with (
            Outputs(outputs_file, inputs_file, asks) as outputs,
            Words(self._settings, self._pipeline, self._limits) as words,
        ):
            if outputs.written > inputs.count:
                raise UsageError(
                    f"{outputs_file} has {outputs.written} rows, and {inputs_file} only {inputs.count}: one was "
                    "changed since; name another file for outputs"
                )
            self._outputs = outputs
            self._chunk = max(self._chunk, outputs.chunk)  # as many may be under way still
            self._state = Progress(inputs.count, outputs.written, outputs.written)
            rows = inputs.rows(outputs.written)
            if outputs.since is not None and not self._state.done:
                self._catch_up(rows, outputs.since)
            while not self._state.done:
                for word in words.take():
                    self._pace.hear(time.monotonic(), word)
                self._step(rows)
            self._tell(self._state)
            return self._state

    # Once a round -----------------------------------------------------------------------------------------------

    def _step(self, rows: Iterator[tuple[int, Row]]) -> None:
        state, began = self._state, time.monotonic()
        state.paused = self._pace.paused(began, self._under_way)
        if not state.paused:
            self._send([*self._again(), *self._next(rows)])
        self._note()
        self._take(_POLL)
        state.errors += self._outputs.write(self._answers(self._outputs.written))
        state.written = self._outputs.written
        state.under_way = self._under_way
        state.paused_seconds += time.monotonic() - began if state.paused else 0.0
        if began - self._told >= _POLL:
            self._told = began
            self._tell(state)

    def _next(self, rows: Iterator[tuple[int, Row]]) -> list[_Asked]:
        found = []
        while len(self._asked) < self._chunk and (row := next(rows, None)) is not None:
            one = self._asked[row[0]] = _Asked(*row, self._outputs.attempts.get(row[0], 0))
            found.append(one)
        return found

    @property
    def _under_way(self) -> int:
        return sum(one.answer is None and one.at > 0 for one in self._asked.values())

    def _answers(self, start: int) -> list[dict[str, Any]]:
        """Take the rows that follow on those that are written."""
        rows: list[dict[str, Any]] = []
        while (one := self._asked.get(start + len(rows))) is not None and one.answer is not None:
            rows.append(one.answer)
            del self._asked[one.row]
        return rows

    def _again(self) -> list[_Asked]:
        """Those that were handed back."""
        now, asked = time.monotonic(), self._asked.values()
        return [one for one in asked if one.answer is None and not one.at and one.not_before <= now]

    def _send(self, queries: list[_Asked]) -> None:
        if any(one.attempt for one in queries) or self._outputs.since is None:
            self._note(force=True)
        for one in queries:
            one.at = one.at or time.time()
            if isinstance(one.inputs, WireError):
                one.answer = error_row(one.row, FAILED, one.inputs.reason, str(one.inputs))
                continue
            try:
                future = self._submit(
                    one.inputs,
                    self._parameters,
                    deadline=OUTCOME_SECONDS,
                    request_id=f"{self._outputs.job}-{one.row}-{one.attempt}",
                    headers=_HEADERS,
                )
            except WireError as error:
                one.answer = error_row(one.row, FAILED, error.reason, str(error))
                continue
            except UNFIT as error:
                one.answer = error_row(one.row, FAILED, reasons.BAD_INPUT, words_of(error))
                continue
            future.add_done_callback(partial(self._report, one, one.attempt))

    def _report(self, one: _Asked, attempt: int, future: Future[Outcome]) -> None:
        self._ended.put((one, attempt, future))

    def _take(self, seconds: float) -> None:
        """Take the outcomes that have come, waiting so long for the first one."""
        try:
            ended = self._ended.get(timeout=seconds)
            while True:
                self._hear(*ended)
                ended = self._ended.get_nowait()
        except queue.Empty:
            pass

    def _hear(self, one: _Asked, attempt: int, future: Future[Outcome]) -> None:
        if one.answer is not None or one.attempt != attempt:
            return  # it was found on the egress
        try:
            self._answered(one, future.result())
        except WireError as error:  # an asyncio client's, which sends later
            one.answer = error_row(one.row, FAILED, error.reason, str(error))
        except UNFIT as error:
            one.answer = error_row(one.row, FAILED, reasons.BAD_INPUT, words_of(error))
        except TimeoutError as error:  # the client's
            one.lost += 1
            self._once_more(one)
            if one.lost >= _ATTEMPTS:
                one.answer = error_row(one.row, FAILED, "no-outcome", str(error))

    def _answered(self, one: _Asked, outcome: Outcome) -> None:
        if outcome.kind == DROPPED and outcome.reason == reasons.NO_SPARE_TIME:
            self._state.handed_back += 1
            self._once_more(one)
        else:
            try:
                one.answer = _row(one.row, outcome)
            except UNFIT as error:
                one.answer = error_row(one.row, FAILED, reasons.BAD_RESULT, f"no line of JSON: {words_of(error)}")

    @staticmethod
    def _once_more(one: _Asked) -> None:
        one.attempt, one.at, one.not_before = one.attempt + 1, 0.0, time.monotonic() + _AGAIN

    def _note(self, *, force: bool = False) -> None:
        """Keep since when outcomes may have come, now and then; before an attempt is sent, which attempt that is."""
        if time.monotonic() - self._noted < _NOTED and not force:
            return
        self._noted = time.monotonic()
        waiting = [one for one in self._asked.values() if one.at]
        since = min((one.at for one in waiting), default=time.time())
        attempts = {one.row: one.attempt for one in self._asked.values() if one.attempt}
        self._outputs.note(since, attempts, self._chunk)

    # After a crash ----------------------------------------------------------------------------------------------

    def _catch_up(self, rows: Iterator[tuple[int, Row]], since: float) -> None:
        """Ask what was under way, unless its outcome has come meanwhile."""
        prefix = f"{self._outputs.job}-"
        with Released(self._settings, self._pipeline, self._limits, prefix, since - _SKEW) as released:
            asked = self._next(rows)
            for one in asked:
                one.at = since  # when it may have been sent
            self._found(released)
            self._send([one for one in asked if one.answer is None and one.at])
            self._found(released)  # what came before it was asked, and after the egress was read

    def _found(self, released: Released) -> None:
        for request_id, outcome in released.to_the_end():
            row, attempt = (int(part) for part in request_id.split("-")[1:])
            one = self._asked.get(row)
            if one is not None and one.answer is None and one.attempt == attempt:
                self._answered(one, outcome)


def _row(number: int, outcome: Outcome) -> dict[str, Any]:
    if outcome.kind != PREDICTION:
        return error_row(number, outcome.kind, outcome.reason, outcome.text)
    flags = {
        stage: {name: flag for name, flag in said.items() if name != _WHY} if isinstance(said, dict) else said
        for stage, said in outcome.flags.items()
    }
    row = {"row": number, "outputs": show_value(outcome.outputs)}
    return row | {"flags": show_value(flags)} if flags else row
