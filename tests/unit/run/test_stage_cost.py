"""How much Python a message of a plain stage takes, from the chunk that it came in to the commit: counted, not timed.

A wakeup, and code that runs cold, cost a stage most of its time, and both grow with what is entered on the way.
"""

import asyncio
import sys
from pathlib import Path

from spillway import Pipeline
from spillway.agents.live.clock import Clock
from spillway.agents.live.stage.build import build_core, build_work, known_of
from spillway.agents.live.stage.config import StageConfig
from spillway.agents.live.stage.crash_watch import CrashWatch
from spillway.agents.metrics import StageMetrics
from spillway.agents.run.emission import Emission
from spillway.agents.run.inputs import OF_STATES, Inputs
from spillway.agents.run.intake import Intake
from spillway.agents.run.memory import Memory, Rereading
from spillway.agents.run.stage import Stage
from spillway.agents.run.stage_context import Context
from spillway.agents.run.tally import Tally
from spillway.lineage import headers
from spillway.lineage.hops import Hop
from spillway.lineage.message import Query
from spillway.lineage.ports import Bounds, Record
from spillway.lineage.values.codec import Decoder, encode_query

FUNCTIONS, LINES = 195, 865  # 293 and 860 before the drivers had ports
WARM = 20  # messages before those that are counted
COUNTED = 5  # messages, of which the least counts: a timer may be due in one, where the machine is busy
ROOT = str(Path(__file__).parents[3])
PIPELINE = Pipeline.parse(
    'name: p\nslo: 500ms\nstages:\n  - {name: a, model: "m:M"}\n  - {name: b, model: "m:M", after: a}\n'
)


class Echo:
    def predict(self, batch):
        return [dict(query) for query in batch]


class Ports:
    """All that a stage asks for, at no cost."""

    room = True
    busy = frozenset()

    def __init__(self):
        self.sent = []

    async def positions(self, _partitions):
        return {}

    async def bounds(self, partitions):
        return dict.fromkeys(partitions, Bounds(0, 1 << 40))

    def send(self, _record, token):
        self.sent.append(token)

    def hurry(self):
        pass

    def submit(self, worker, batch):
        asyncio.get_running_loop().call_soon(lambda: self.stage.executed(batch, self.work.run(worker, batch)))


class Counter:
    """Counts functions that are entered, and distinct lines, of the project's own code."""

    def __init__(self):
        self.entered, self.lines = 0, set()
        self.own = {}

    def called(self, frame, _event, _argument):
        file = frame.f_code.co_filename
        if file not in self.own:
            real = str(Path(file).resolve())
            self.own[file] = real.startswith(ROOT) and "/tests/" not in real and "/.venv/" not in real
        if not self.own[file]:
            return None
        self.entered += 1
        return self.line

    def line(self, frame, event, _argument):
        if event == "line":
            self.lines.add((frame.f_code.co_filename, frame.f_lineno))
        return self.line


def build(ports):
    limits, model, clock = PIPELINE.spec.limits.merged(), Echo(), Clock()
    config = StageConfig(pipeline=PIPELINE, stage="b", replica=0, policy="naive", plan_period=1.0)
    guard, metrics = CrashWatch("b"), StageMetrics("p", "b", 0)
    ports.work = build_work(config, {0: model}, known_of(model), guard)
    intake = Intake(predecessors=("a",), decoder=Decoder(limits), signature=None, slo=0.5, metrics=metrics)
    context = Context(
        intake=intake,
        emission=Emission("p", "b", limits, clock.now),
        memory=Memory("p.b", None, intake),
        rereading=Rereading("p.b", None, intake),
        metrics=metrics,
        tally=Tally(metrics),
        inputs=Inputs("p.b", OF_STATES, {}),
        guard=guard,
        remembered=ports.work.remembered,
        reload_schemas=bool,
    )
    stage = Stage(build_core(config, threads=1), clock, context)
    stage.start(ports, ports, ports)
    return stage


def record(number, clock):
    sent = int(clock.now() * 1e6)
    pairs = headers.encode(headers.Headers(f"q{number}", sent, sent + 500_000, Hop("a", 0, 0, number, number)))
    value = encode_query(Query({"x": number}), PIPELINE.spec.limits.merged())
    return Record("p.b", 0, number, sent // 1000, True, b"k", value, tuple(pairs))


async def one(stage, ports, number, clock):
    came = record(number, clock)
    traced = Counter()
    before = sys.gettrace()
    sys.settrace(traced.called if number >= WARM else before)
    try:
        await stage.accept({0: [came]})
        while not ports.sent:  # noqa: ASYNC110 - ports have no event
            await asyncio.sleep(0)
        emits, ports.sent = ports.sent, []
        stage.stored(emits)
        stage.committed(stage.commits())
    finally:
        sys.settrace(before)
    return traced


async def test_a_message_enters_few_functions(capsys):
    ports, clock = Ports(), Clock()
    ports.stage = stage = build(ports)
    await stage.assigned(frozenset({0}))
    while not stage.partitions:  # noqa: ASYNC110 - nor has a stage
        await asyncio.sleep(0)
    for number in range(WARM):
        await one(stage, ports, number, clock)
    counted = [await one(stage, ports, WARM + number, clock) for number in range(COUNTED)]
    entered, lines = min(each.entered for each in counted), min(len(each.lines) for each in counted)
    with capsys.disabled():
        print(f"\na message of a plain stage: {entered} functions entered, {lines} lines of ours")
    assert 100 < entered <= FUNCTIONS
    assert 400 < lines <= LINES
