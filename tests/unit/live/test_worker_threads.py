"""Workers that come and go as a front is told to have more or fewer: threads, and, with stand-ins, processes."""

import asyncio
import threading
import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.agents.core.pool import Pool
from spillway.agents.live.clock import Clock
from spillway.agents.live.stage import crew as crew_module
from spillway.agents.live.stage.build import build_core, note_sizes
from spillway.agents.live.stage.config import StageConfig
from spillway.agents.live.stage.crew import Crew
from spillway.agents.live.stage.threads import Threads
from spillway.agents.models.execution import Runner
from spillway.lineage.errors import ModelError
from spillway.topology.load import parse
from spillway.topology.sizes import Size, key_of, sized
from tests.waiting import Bound


class Driver:
    def __init__(self):
        self.attached, self.running, self.done, self.crashes = {0}, set(), [], []

    def attach(self, worker):
        assert worker not in self.attached
        self.attached.add(worker)

    def drain(self, worker):
        self.attached.remove(worker)  # KeyError, as a core has it, for one that it does not know
        return worker not in self.running

    def executed(self, batch, done):
        self.done.append((batch.worker, done))

    def crashed(self, error):
        self.crashes.append(error)


class Bench:
    def __init__(self, load=object, pause=0.0):
        self.driver, self.models = Driver(), {0: "first"}
        self.going = threading.Event()
        self.threads = Threads(
            "stage 's'",
            self.models,
            [Runner("instance-0")],
            load,
            clock=time.monotonic,
            loop=asyncio.get_running_loop(),
            driver=self.driver,
            work=self.work,
            pause=pause,
        )

    def work(self, worker, batch):
        assert worker in self.models
        assert self.going.wait(60)
        return batch.n


async def until(condition):
    bound = Bound(30)
    while not condition():
        assert not bound.over
        await asyncio.sleep(0.005)


async def test_further_copies_are_loaded_and_get_batches_and_those_that_are_over_end():
    bench = Bench()
    bench.threads.resize(3)
    await until(lambda: bench.driver.attached == {0, 1, 2})
    assert set(bench.models) == {0, 1, 2}
    bench.going.set()
    for worker in range(3):
        bench.threads.submit(worker, SimpleNamespace(worker=worker, n=worker))
    await until(lambda: sorted(bench.driver.done) == [(0, 0), (1, 1), (2, 2)])
    bench.threads.resize(1)
    assert set(bench.models) == bench.driver.attached == {0}
    await until(lambda: not any(each.name in {"instance-1", "instance-2"} for each in threading.enumerate()))
    bench.threads.resize(2)
    await until(lambda: bench.driver.attached == {0, 3})  # a number is never used again
    assert bench.threads.close(5.0)


async def test_emulated_accelerators_load_beside_each_other(monkeypatch):
    pauses, both = [], threading.Barrier(2, timeout=30)
    monkeypatch.setattr(time, "sleep", lambda seconds: (pauses.append(seconds), both.wait()))
    bench = Bench(pause=5.0)
    bench.threads.resize(3)
    await until(lambda: bench.driver.attached == {0, 1, 2})
    assert pauses == [5.0, 5.0]
    assert bench.threads.close(5.0)


async def test_a_worker_that_is_over_answers_its_batch_first():
    bench = Bench()
    bench.threads.resize(2)
    await until(lambda: bench.driver.attached == {0, 1})
    bench.driver.running = {1}
    bench.threads.submit(1, SimpleNamespace(worker=1, n=7))
    bench.threads.resize(1)
    assert set(bench.models) == {0, 1}
    bench.going.set()
    await until(lambda: set(bench.models) == {0})
    assert bench.driver.done == [(1, 7)]
    assert bench.threads.close(5.0)


async def test_a_copy_that_is_not_wanted_any_more_once_it_is_loaded_is_let_go():
    loading = threading.Event()
    bench = Bench(lambda: loading.wait(60))
    bench.threads.resize(2)
    bench.threads.resize(1)
    loading.set()
    await until(lambda: not any(each.name == "instance-1" for each in threading.enumerate()))
    await asyncio.sleep(0)
    assert bench.driver.attached == set(bench.models) == {0}
    assert bench.threads.close(5.0)


async def test_a_copy_that_cannot_be_loaded_is_tried_again_and_stops_nothing(caplog):
    fails = [True, True]

    def load():
        if fails:
            fails.pop()
            raise SystemExit("no memory")
        return object()

    bench = Bench(load)
    bench.threads.resize(2)
    await until(lambda: len(bench.driver.attached) == 2)
    assert bench.driver.crashes == []
    assert caplog.text.count("cannot be loaded") == 2
    assert bench.threads.close(5.0)


async def test_a_worker_process_that_is_over_while_it_loads_is_ended_without_the_core():
    said = []
    links = SimpleNamespace(spawn=lambda worker: said.append(("spawn", worker)), close=lambda: None)
    links.bye = lambda worker: said.append(("bye", worker))
    crew, driver = Crew("stage 's'", Pool(1), Clock(), lambda _crew: links), Driver()
    driver.attached = set()
    crew._act()
    crew._is_ready(0, {})
    crew.begin(driver, None)
    crew.resize(3)
    crew.resize(1)
    assert said == [("spawn", 0), ("spawn", 1), ("spawn", 2), ("bye", 2), ("bye", 1)]
    crew._is_ready(1, {})
    assert driver.attached == {0}
    assert said[5:] == [("bye", 1)]


@pytest.mark.parametrize("starts", [True, False])
async def test_a_model_whose_process_ends_while_it_is_loaded_is_given_up(starts):
    links = SimpleNamespace(spawn=int, close=lambda: None)
    crew = Crew("stage 's'", Pool(1, starts=starts), Clock(), lambda _crew: links)
    first = asyncio.ensure_future(crew.first())
    await asyncio.sleep(0)
    for worker in range(3):
        assert not crew._hello.done()
        crew._is_lost(worker, [], [], "exit code 4", failed=False)
    if starts:
        with pytest.raises(ModelError, match=r"^stage 's': its process ended 3 times .*; the last: exit code 4$"):
            await first
    else:  # those of other hosts are waited for
        assert not crew._hello.done()
        first.cancel()


@given(st.lists(st.one_of(st.sampled_from("abc"), st.tuples(st.booleans(), st.integers(0, 5)))))
def test_workers_are_counted_by_the_version_of_their_model_and_each_new_one_is_logged(turns):
    """`turns`: the version that a worker comes with, or which of them is gone, and whether it was lost."""

    async def test():
        with pytest.MonkeyPatch.context() as patch:
            warned = []
            patch.setattr(crew_module.log, "warning", lambda *words: warned.append(words[3]))
            links, there, seen = SimpleNamespace(bye=int), {}, []
            crew = Crew("stage 's'", Pool(0), Clock(), lambda _crew: links)
            crew._driver = SimpleNamespace(lose=lambda *_arguments, **_options: None)
            for worker, turn in enumerate(turns):
                if isinstance(turn, str):
                    crew.ready(worker, {"version": turn})
                    there[worker] = turn
                    seen += [turn] if turn not in seen else []
                elif turn[1] in there:
                    lost, gone = turn
                    crew._is_lost(gone, [], [], "gone", failed=False) if lost else crew._bye(gone)
                    del there[gone]
                assert crew.versions() == {each: list(there.values()).count(each) for each in seen}
            assert warned == seen[1:]

    asyncio.run(test())


def test_a_policy_hears_how_many_workers_each_stage_is_to_have():
    pipeline = parse("{name: p, slo: 1, stages: [{name: a, model: 'm:M'}, {name: b, after: a, model: 'm:M'}]}")
    core = build_core(StageConfig(pipeline=pipeline, stage="a", replica=0))
    note_sizes(core.view.facts, sized(pipeline.spec, {key_of("b"): Size(4, "me", "", 5.0, 1, "d")}))
    assert {name: facts.workers for name, facts in core.view.facts.items()} == {"a": 1, "b": 4}
