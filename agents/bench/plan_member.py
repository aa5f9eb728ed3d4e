"""One stage replica of `spillway bench plan`: the live planner and feed in a process of its own, with a made-up queue.

Writes a JSON line per merge: {"at", "ages": seconds by other stage, "later": the terms of eq. 3 behind this stage,
"say", "merge": seconds of processor that each took}, and at the end {"said", "heard": Kafka's bytes and requests in
either direction}, of its producer and its consumer. Usage: python -m agents.bench.plan_member JSON
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from typing import TYPE_CHECKING, Any

from agents.core.estimates.outlook import Outlook
from agents.core.policy import Load, StageFacts, StageState, StageView
from agents.live.clock import Clock
from agents.live.metrics import StageMetrics
from agents.live.output import Output
from agents.live.plan.feed import PlanFeed
from agents.live.plan.planner import Planner, without
from lineage.values.codec import Decoder
from producers.connection import ClientSettings
from topology import topics
from topology.spec import PipelineSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BATCH, DURATION, QUEUEING = 16, 0.05, 0.04  # what every stage tells; by its profile it would queue for nothing
_SAMPLES = 2_000
_QUANTILE = 0.1
_DRAWS = 10_000
_STATISTICS = 250  # milliseconds


class MadeUpQueue:
    """What a planner asks of a stage's core."""

    reports = True

    def __init__(self, view: StageView) -> None:
        self._view = view
        self._random = random.Random(view.stage)  # noqa: S311 - no secret

    def report(self, now: float) -> StageState:
        """Tell a busy stage's state, with other numbers each time, as bytes go by digits."""
        draw = self._random.uniform
        return StageState(
            stage=self._view.stage,
            replica=0,
            at=now,
            queueing=QUEUEING * draw(0.95, 1.05),
            entered=500 * draw(0.9, 1.1),
            waits=[draw(0.0, DURATION) for _ in range(_SAMPLES)],
            waits_seen=_SAMPLES,
            batch=BATCH,
            recent_batch=BATCH * draw(0.8, 1.0),
            duration=DURATION * draw(0.98, 1.02),
            recent_duration=DURATION * draw(0.9, 1.1),
            arrival_rate=300 * draw(0.9, 1.1),
            completion_rate=290 * draw(0.9, 1.1),
            drop_rate=draw(0.0, 0.05),
            backlog=int(draw(0, 100)),
            span=self._view.period,
        )

    def load(self) -> Load:
        raise NotImplementedError


class Wire:
    """Bytes and requests of one librdkafka client, from its statistics."""

    def __init__(self) -> None:
        self.options = {"statistics.interval.ms": _STATISTICS, "stats_cb": self._take}
        self._now = (0, 0, 0, 0)
        self._marked = (0, 0, 0, 0)

    def mark(self) -> None:
        self._marked = self._now

    def counted(self) -> dict[str, int]:
        sent, received, requests, responses = (now - then for now, then in zip(self._now, self._marked, strict=True))
        return {"sent_bytes": sent, "received_bytes": received, "requests": requests, "responses": responses}

    def _take(self, text: str) -> None:
        brokers = json.loads(text)["brokers"].values()
        sums = [sum(broker[name] for broker in brokers) for name in ("txbytes", "rxbytes", "tx", "rx")]
        self._now = (sums[0], sums[1], sums[2], sums[3])


class WatchedPlanner(Planner):
    """A planner with a watch on what saying costs."""

    say_seconds = 0.0

    def say(self, output: Output) -> None:
        began = time.thread_time()
        super().say(output)
        self.say_seconds = time.thread_time() - began


class Member:
    """A planner with all that it needs, and a record of what it heard."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        """`told`: bootstrap, pipeline, stages, stage, period, warm and seconds."""
        self._told = told
        stages = told["stages"]
        spec = PipelineSpec.model_validate(
            {
                "name": told["pipeline"],
                "slo": 1.0,
                "stages": [
                    {"name": name, "model": "m:M", "after": [before] if before else []}
                    for name, before in zip(stages, [None, *stages], strict=False)
                ],
            }
        )
        self._view = StageView(
            told["stage"],
            slo=1.0,
            facts={name: StageFacts(BATCH, lambda _count: DURATION, 1) for name in stages},
            successors={name: tuple(after) for name, after in zip(stages, [*zip(stages[1:]), ()], strict=True)},
            period=told["period"],
        )
        self._outlook = Outlook(self._view, _QUANTILE, _DRAWS)
        self._planner = WatchedPlanner(
            *(spec, self._view, MadeUpQueue(self._view)),  # type: ignore[arg-type]
            clock=Clock(),
            decoder=Decoder(),
            metrics=StageMetrics(spec.name, told["stage"], 0),
            reload_schemas=lambda: None,
        )
        self._said, self._heard = Wire(), Wire()

    async def run(self) -> None:
        told, planner = self._told, self._planner
        loop = asyncio.get_running_loop()
        settings = ClientSettings(bootstrap=told["bootstrap"])
        output = Output(
            {**settings.confluent(), **self._said.options},
            loop,
            on_stored=lambda tokens: without(planner, tokens, lambda _others: None),
            on_lost=sys.exit,
        )
        topic = topics.plan(told["pipeline"])
        feed = PlanFeed(settings, topic, loop, planner.hear, told["period"], self._heard.options)
        feed.start()
        serving = loop.create_task(planner.run(output, self._tick))
        polling = loop.create_task(_poll(output))
        await asyncio.sleep(told["warm"])
        for wire in (self._said, self._heard):
            wire.mark()
        began = time.monotonic()
        await asyncio.sleep(told["seconds"])
        seconds = time.monotonic() - began
        counted = {"said": self._said.counted(), "heard": self._heard.counted(), "seconds": seconds}
        serving.cancel()
        polling.cancel()
        _write(counted)
        output.close()
        feed.close(1.0)

    def _tick(self, now: float, states: Mapping[str, Sequence[StageState]]) -> None:
        began = time.thread_time()
        self._outlook.hear(now, states)
        later = self._outlook.later(self._view.stage)
        seconds = time.thread_time() - began
        _write(
            {
                "at": time.time(),
                "ages": {name: now - told[0].at for name, told in states.items() if name != self._view.stage},
                "later": [later.queueing, later.execution, later.waits],
                "say": self._planner.say_seconds,
                "merge": seconds,
            }
        )


async def _poll(output: Output) -> None:
    while True:
        output._producer.poll(0)  # noqa: SLF001 - a benchmark looks inside
        await asyncio.sleep(_STATISTICS / 1000)


def _write(what: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(Member(json.loads(sys.argv[1])).run())
