"""Whatever an author's encoder or decoder and a parity model do, a query has its own worker's answer."""

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.agents.coding.codes import Sum
from spillway.agents.core.actions import Ok
from spillway.agents.core.agreement import Agreement
from spillway.agents.core.dispatch import Dispatch, Extra, Group, Recovery
from spillway.agents.core.workers import Batch
from spillway.agents.live.clock import Clock
from spillway.agents.live.stage.crew import Crew
from spillway.agents.live.stage.redundancy_workers import Beside, Extras
from tests.unit.core.builders import NOW, delivery, stage_core
from tests.unit.core.test_odd_answers import ERRORS, Touchy, answers
from tests.unit.live.test_coded import model, work_of

NONSENSE = [
    None,
    7,
    "x",
    [],
    [1],
    {},
    {"x": None},
    {"x": [[1], [2, 3]]},
    {"x": np.array([object()])},
    {1: np.ones(4)},
    {"x": Touchy()},
    {0: None},
    {0: 3},
    {7: {"y": np.ones(3)}},
    {-1: {"y": np.ones(3)}},
    {"a": {"y": np.ones(3)}},
    {0: {"y": np.ones(4)}, 1: {"y": "text"}},
    {0: {"z": np.ones(3)}},
    {0: {"y": [1.0, 2.0, 3.0]}},
    {0: {"y": [[1], [2, 3]]}},
    {0: np.ones(3)},
    np.ones(3),
    Touchy(),
    len,
]
odd = st.integers(0, len(ERRORS) - 1).map(lambda n: ERRORS[n]) | (
    st.integers(0, len(NONSENSE) - 1).map(lambda n: NONSENSE[n]) | answers
)


def odd_code(method, does, often, draw):
    """A code that does something odd, now and then."""

    class Odd(Sum):
        def encode(self, queries, row):
            return self._do("encode") if self._now("encode") else super().encode(queries, row)

        def decode(self, known, parities):
            return self._do("decode") if self._now("decode") else super().decode(known, parities)

        @staticmethod
        def _now(which):
            return which == method and draw.random() < often

        @staticmethod
        def _do(_which):
            if isinstance(does, BaseException):
                raise does
            return does

    return Odd


@given(
    st.sampled_from(["encode", "decode", "parity", "query", "own"]),
    odd,
    st.sampled_from([0.5, 1.0]),
    st.integers(0, 99),
)
def test_whatever_is_odd_what_is_made_is_an_answer_or_none(where, does, often, seed):
    draw = random.Random(seed)
    rows = draw.randint(1, 2)
    work, group = work_of(2, rows, odd_code(where, does, often, draw)), Group()

    def odd_or(value, here):
        strange = where == here and draw.random() < often and not isinstance(does, BaseException)
        return does if strange else value

    for worker in range(2):
        queries = [{"x": odd_or(np.arange(4.0) + worker, "query")} for _ in range(2)]
        group.batches.append(Batch(worker, queries, 0.0, 0.0))
    for row in range(rows):
        extra = Extra(group, row)
        prepared = work.prepare(extra)
        for place, inputs in enumerate(prepared.inputs):
            outputs = odd_or(model(inputs["x"]) if "x" in inputs else None, "parity")
            work.result(prepared, place, {"outputs": outputs}, 0.1)
        assert prepared.executed(0.1, 0.0).results == []
        group.rows[row] = extra
    group.batches[0].outputs = [odd_or(model(np.arange(4.0)), "own") for _ in range(2)]
    ((_, made),) = work.recover(Recovery(group, (1,)))
    assert len(made) == 2
    assert all(each is None or each["y"].shape == (3,) for each in made)
    group.batches[1].outputs = [odd_or(model(np.arange(4.0) + 1), "own") for _ in range(2)]
    agree, graded = work.grade(Recovery(group, (0, 1)))
    assert 0 <= agree <= graded <= 4


class Links:
    """A crew's links that are not there: what is sent to a worker is kept."""

    def __init__(self):
        self.sent = []

    def call(self, what):
        what()

    def send(self, worker, prepared, queries, *, singly):
        self.sent.append((worker, prepared, queries, singly))


class Unlinked(Crew):
    """A crew whose worker is whoever the test says."""

    def __init__(self):
        self._links, self._running, self._versions, self._closed = Links(), {}, {}, False
        self._work, self._driver, self._clock = None, None, Clock()
        self._loop = asyncio.get_running_loop()

    def submit(self, worker, job):
        self._begin(worker, job)

    def _is_executed(self, _worker, job, done):
        self._driver.executed(job, done)

    def begin(self, driver, work):
        self._driver, self._work = driver, work
        driver.attach(0)


@pytest.mark.parametrize("error", ERRORS, ids=type)
@pytest.mark.parametrize("where", ["encode", "decode", "recover"])
async def test_a_code_that_raises_costs_a_stage_nothing(where, error):
    """The extras of several groups in a row are given up, and each query has its own worker's answer."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    dispatch = Dispatch(width=2, rows=1, agreement=Agreement(0.0))
    core = stage_core("chain", "b", instances=2, steps=[dispatch])
    crashed = []
    work, crew = work_of(2, 1, odd_code(where, error, 1.0, random.Random(0))), Unlinked()
    if where == "recover":
        work.recover = work.grade = odd_code("decode", error, 1.0, random.Random(0))(2).decode
    work._queries = lambda group: [[{"x": np.ones(4)}] * 2 for _ in group.batches[0].requests]
    beside = Beside(dispatch, [crew], lambda _: work)
    stage = SimpleNamespace(changed=lambda change: change(NOW), crashed=crashed.append)
    extras = Extras(beside, None, asyncio.get_running_loop(), stage)
    extras.begin()
    for n in range(8):
        core.deliver(NOW, delivery(str(n), n, "a"))
    answered = 0
    while (runs := core.take_runs()) or core.depth:
        extras.pump(NOW)
        for worker, prepared, queries, _ in crew._links.sent:
            crew.answered(worker, prepared, 0, [{"outputs": model(np.ones(4))} for _ in queries], 0.1)
        crew._links.sent.clear()
        await asyncio.to_thread(bool)  # what was given to the thread before is done, too
        for batch in runs:
            batch.outputs = [model(np.ones(4)) for _ in batch.requests]
            core.complete(NOW, batch, [Ok({"c": 0}) for _ in batch.requests], 0.01)
            answered += len(batch.requests)
            extras.pump(NOW)
            await asyncio.to_thread(bool)
    assert answered == core.unsettled == 8
    assert crashed == []
    assert dispatch.stats.answered == dispatch.stats.started > 0
