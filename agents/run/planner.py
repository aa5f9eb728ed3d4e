"""The State Planner of a live stage (PARD, section 4.1): tells its state, hears the others', and ticks the policy.

Once a period, at a multiple of it by the clock, so that all replicas speak of the same moment:

1. `say`: the policy's own state (`StageCore.report`), or, of a policy that tells none, what was observed of its queue,
   goes to `<p>.plan`. A word is not said while the one before is under way: what is late is of no use.
2. a moment later, when the others' words have come, `merge`: the policy gets the newest state of every replica that is
   not silent (`StageCore.tick`). That happens whether or not Kafka is there; then the others fall silent one by one.

This replica's own state is merged as the others read it, so that replicas that heard the same decide the same; it does
not wait for its echo, which only tells how long words take.
Everything here runs on the application's loop; nothing waits.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from spillway.agents.core.board import UNREADABLE, Board, silence_of, word_of
from spillway.agents.core.estimates.observed import Observed
from spillway.lineage import reasons
from spillway.lineage.errors import WireError
from spillway.lineage.metric_names import GATE
from spillway.lineage.ports import Outgoing, Since
from spillway.lineage.values.codec import encode_word
from spillway.topology import topics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from spillway.agents.core.policy import StageState, StageView
    from spillway.agents.core.stage import StageCore
    from spillway.agents.metrics import StageMetrics
    from spillway.lineage.message import PlanWord
    from spillway.lineage.ports import Clock, Following, Log, Output, Record
    from spillway.lineage.values.codec import Decoder
    from spillway.topology.spec import PipelineSpec

    Tick = Callable[[float, Mapping[str, Sequence[StageState]]], None]

log = logging.getLogger(__name__)


_SINCE = 60.0  # seconds before the start: an older word counts for nothing, and the topic may hold hours of them
_LONGEST_DELAY = 0.05  # seconds between saying and merging
_RELOAD = 10.0  # seconds between two looks for the schema of a word


class Planner:
    """One replica's part in the exchange of states."""

    def __init__(
        self,
        spec: PipelineSpec,
        view: StageView,
        core: StageCore,
        *,
        clock: Clock,
        decoder: Decoder,
        metrics: StageMetrics,
        reload_schemas: Callable[[], object],
    ) -> None:
        """`view` is the policy's: its stage, replica and period. `reload_schemas`: as for the driver."""
        self._view = view
        self._core = core
        self._clock = clock
        self._decoder = decoder
        self._metrics = metrics
        self._reload_schemas = reload_schemas
        self._reloaded = -_RELOAD
        self.observed = None if core.reports else Observed(view)  # is told of every request; see `Tally`
        self._began_us = round(clock.now() * 1e6)
        self._key = key_of(view.stage, view.replica)
        self._topic = topics.plan(spec.name)
        self._under_way = False
        self._unsaid = ""  # why the last state could not be told, if there was one
        self._words: Following | None = None
        self.board = Board([*(stage.name for stage in spec.stages), GATE], spec.partitions, silence_of(view.period))
        metrics.plan = self.board
        metrics.plan_facts = view.facts

    # What comes ------------------------------------------------------------------------------------------------

    def follow(self, kafka: Log, start: int | None = None) -> None:
        """Follow what the replicas report, from a minute ago on. A failure to read it stops nothing else."""
        self.deafen()
        self._words = kafka.follow(
            (self._topic, 0),
            Since(self._clock.now() - _SINCE) if start is None else start,
            self.hear,
            cut=lambda bounds: self.follow(kafka, bounds.start),
            trouble=lambda error: log.warning("%s cannot be read; trying again: %s", self._topic, error),
        )

    def deafen(self) -> None:
        if self._words is not None:
            self._words.stop()

    def hear(self, words: Sequence[Record]) -> None:
        now = self._clock.now()
        for record in words:
            if record.value is None:
                self._forget(record.key)
                continue
            try:
                word = self._decoder.word(record.value)
            except WireError as error:
                log.warning("a status message on %s cannot be read (%s): %s", self._topic, error.reason, error)
                self.board.refuse(UNREADABLE)
                self._look_for_schemas(now, error)
                continue
            if key_of(word.stage, word.replica) == self._key:
                self._echo(now, word)
            elif (reason := self.board.hear(now, word, self._clock.monotonic())) is not None:
                log.info("a status message of %s.%d was refused: %s", word.stage, word.replica, reason)

    def stored(self) -> None:
        """Learn that the broker has the last word, or will never have it."""
        self._under_way = False

    # Once a period ---------------------------------------------------------------------------------------------

    async def run(self, output: Output, tick: Tick) -> None:
        """Say and merge until cancelled; `tick` gives what is known of all to the policy."""
        period = self._view.period
        delay = min(period / 4, _LONGEST_DELAY)
        while True:
            now = self._clock.now()
            await asyncio.sleep((now // period + 1) * period - now)
            self.say(output)
            await asyncio.sleep(delay)
            self.merge(tick)

    def say(self, output: Output) -> None:
        now = self._clock.now()
        state = self._state(now)
        try:
            said = encode_word(word_of(state, self._began_us))
        except (TypeError, WireError) as error:  # a policy of the author's may tell anything
            self._complain("cannot be encoded", error)
            return
        word = self._decoder.word(said)
        if (reason := self.board.hear(now, word, self._clock.monotonic())) is not None:
            self._complain(f"was refused: {reason}", word)
            return
        waits = state.waits
        self._metrics.calibration.told(state.queueing, sum(waits) / len(waits) if waits else 0.0, self._duration(state))
        if self._under_way or not output.room:
            self._metrics.plan_unsaid += 1
            return
        self._under_way = True
        output.send(Outgoing(self._topic, 0, self._key, said), self, vital=False)

    def merge(self, tick: Tick) -> None:
        now, there = self._clock.now(), self._clock.monotonic()
        for heard in self.board.heard(there):
            if (heard.state.stage, heard.state.replica) != (self._view.stage, self._view.replica) and not heard.silent:
                self._metrics.plan_age.observe(heard.age)
        tick(now, self.board.states(there))

    def farewell(self, output: Output) -> None:
        output.send(Outgoing(self._topic, 0, self._key, None), self, vital=False)

    # Inside ----------------------------------------------------------------------------------------------------

    def _complain(self, why: str, about: object) -> None:
        """Log, once for each reason in turn, why the others do not hear of this replica."""
        if why != self._unsaid:
            log.warning("the policy of %s reports a state that %s: %r", self._view.stage, why, about)
        self._unsaid = why

    def _state(self, now: float) -> StageState:
        state = self._core.report(now)
        if state is None:
            self.observed = self.observed or Observed(self._view)
            state = self.observed.report(now, self._core.load())
        return replace(state, hops=self._metrics.transfer.samples(now))

    def _duration(self, state: StageState) -> float:
        facts = self._view.facts.get(state.stage)
        return state.duration or (facts.duration(facts.batch) if facts is not None else 0.0)

    def _echo(self, now: float, word: PlanWord) -> None:
        if word.began_us == self._began_us:
            self._metrics.plan_delay.observe(max(0.0, now - word.at_us / 1e6))

    def _look_for_schemas(self, now: float, error: WireError) -> None:
        """Look, off the loop, whether a newer writer has registered its schema: its next word can be read then."""
        if error.reason == reasons.UNKNOWN_SCHEMA and now - self._reloaded >= _RELOAD:
            self._reloaded = now
            asyncio.get_running_loop().run_in_executor(None, self._reload_schemas)

    def _forget(self, key: bytes | None) -> None:
        stage, _, replica = (key or b"").decode(errors="replace").rpartition(".")
        if key != self._key and replica.isascii() and replica.isdigit() and len(replica) < 8:  # noqa: PLR2004
            self.board.forget(stage, int(replica))


def key_of(stage: str, replica: int) -> bytes:
    return f"{stage}.{replica}".encode()


def without_words(tokens: Sequence[Any], stored: Callable[[Sequence[Any]], None]) -> None:
    """Pass on what the broker has stored: to planners their words, to `stored` the rest.

    `stored` is called though there may be no rest: a word that is stored leaves room in the output, too.
    """
    rest = []
    for token in tokens:
        if isinstance(token, Planner):
            token.stored()
        else:
            rest.append(token)
    stored(rest)
