"""A tuner beside a pipeline: it scales under load, and whatever is killed, no query is lost or answered twice."""

import os
import random
import re
import signal
from contextlib import suppress

import psutil
import pytest
import yaml

from spillway.agents.live.topics import ensure
from spillway.agents.supervise.registry import entries
from spillway.producers.client import Client
from spillway.producers.connection import ClientSettings
from spillway.topology.load import load
from spillway.topology.topics import topic_plan
from tests.acceptance.serving import ROOT, command, serving
from tests.acceptance.test_scale import MODELS, Stream, instances
from tests.waiting import PATIENT_SECONDS, until

NIGHTLY = 10


@pytest.fixture
def pipeline(unique_name, tmp_path):
    first = {"name": "a", "model": f"{MODELS}:Thread", "workers": {"timeout": "20s"}}
    second = {"name": "b", "model": f"{MODELS}:Process", "after": "a", "workers": {"where": "process"}}
    spec = {"name": unique_name, "slo": PATIENT_SECONDS, "partitions": 4, "policy": "naive"}
    path = tmp_path / "pipeline.yaml"
    path.write_text(yaml.safe_dump({**spec, "stages": [first, second]}))
    return path


@pytest.fixture
def plan(pipeline, tmp_path):
    """For 20 queries a second."""
    loaded = load(pipeline)
    stage = {"hardware": "cpu", "runs": "core", "count": 1, "batch": 2, "price": 0.05, "load": 1.0, "share": 1.0}
    stage |= {"throughput": 25.0, "ratio": 0.8, "takes": {1: 0.04}}
    facts = {"name": "t", "queries": 2000, "seconds": 100.0, "rate": 20.0, "service_time": 0.5}
    told = {"spillway-plan": 1, "pipeline": loaded.spec.name, "digest": loaded.digest, "slo": 1.0, "cost": 0.1}
    told |= {"p99": 0.5, "misses": 0.0, "trace": facts, "envelope": [[0.5, 14], [1.0, 26], [2.0, 50], [4.0, 90]]}
    told |= {"stages": {"a": stage, "b": stage}}
    path = tmp_path / "plan.yaml"
    path.write_text(yaml.safe_dump(told))
    return path


def ready(served, stage):
    return sum(instances(served, stage))


def pids(served, role, stage=""):
    """Of the living processes of a role; of workers: the children of the stage's front."""
    found = [
        entry.pid
        for entry in entries(served.run_dir, served.pipeline)
        if entry.alive()
        and entry.role == ("stage" if role == "worker" else role)
        and entry.stage == (stage or entry.stage)
    ]
    return [child.pid for pid in found for child in psutil.Process(pid).children()] if role == "worker" else found


def kill(pid):
    with suppress(ProcessLookupError):  # it has ended meanwhile
        os.kill(pid, signal.SIGKILL)


def status_of(served):
    """What the command prints, whatever a terminal of 80 characters breaks."""
    return " ".join(command("status", served.pipeline, "--run-dir", served.run_dir).stdout.split())


@pytest.mark.nightly
def test_it_goes_up_with_the_load_and_leaves_alone_what_is_held(broker, unique_name, pipeline, plan, tmp_path):
    with serving(pipeline, unique_name, broker, tmp_path, "--sizes", plan, "--tune", cwd=ROOT) as served:
        with served.client() as client, Stream(client, 0.05) as stream:
            until(lambda: len(stream.outputs) >= 20, 60.0, "answers")
            code, said = served.change("scale", pipeline, "a", "2")
            assert (code, "sizes stage 'a'" in said, "--hold" in said) == (2, True, True), said + served.logs()
            code, said = served.change("scale", pipeline, "a", "2", "--hold", "--why", "mine")
            assert (code, "a: 2 ready" in said) == (0, True), said + served.logs()
            stream.pace = 0.01
            until(lambda: ready(served, "b") >= 3, 60.0, lambda: f"more of b\n{served.logs()}")
            assert ready(served, "a") == 2
            told = status_of(served)
            assert "tuner: a is not tuned" in told, told
            assert "tuner: b is tuned" in told, told
            assert re.search(r"a\.0: 2 workers wanted; ordered by .*, held, .*: mine", told), told
            assert re.search(
                r"b\.0: \d workers wanted.*; ordered by tuner .*/s in .* s; the plan's sample has", told
            ), told
            stream.pace = 0.05
        assert served.stop() == 0, served.logs()


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.nightly) for n in range(1, NIGHTLY + 1))])
def test_whatever_is_killed_while_sizes_change_no_query_is_lost_or_doubled(
    broker, unique_name, pipeline, plan, tmp_path, seed
):
    rng = random.Random(seed)
    deaths = ["worker", "front", "tuner", *(["worker", "tuner"] if seed else [])]
    rng.shuffle(deaths)
    settings = ClientSettings(bootstrap=broker)
    ensure(settings, topic_plan(load(pipeline).spec))
    with Client(unique_name, settings, slo=PATIENT_SECONDS) as client:
        with (
            serving(pipeline, unique_name, broker, tmp_path, "--sizes", plan, "--tune", cwd=ROOT) as served,
            Stream(client, 0.05) as stream,
        ):
            until(lambda: len(stream.outputs) >= 20, 60.0, "answers")
            stream.pace = 0.01
            until(lambda: ready(served, "b") >= 2, 60.0, lambda: f"more of b\n{served.logs()}")
            for death in deaths:
                stage = rng.choice("ab")
                if rng.random() < 0.5:
                    served.change("scale", pipeline, stage, str(rng.randint(1, 4)), *["--hold"] * (rng.random() < 0.5))
                stream.pace = rng.choice([0.01, 0.02, 0.05])
                alive = until(
                    lambda death=death, stage=stage: pids(served, death.replace("front", "stage"), _of(death, stage)),
                    60.0,
                    lambda death=death: f"a {death} to kill\n{served.logs()}",
                )
                kill(rng.choice(alive))
                since = len(stream.outputs) + 20
                until(lambda since=since: len(stream.outputs) >= since, 60.0, lambda: f"answers\n{served.logs()}")
            if seed == 0:  # with which it is served but once
                stream.__exit__()
                until(lambda: len(stream.outputs) == len(stream.asked), 60.0, "an outcome for every query")
                assert served.stop() == 0, served.logs()
                return stream.judge(served)
            served.process.kill()  # and all its processes with it
            served.process.wait()
        (tmp_path / "ready").unlink(missing_ok=True)
        with serving(pipeline, unique_name, broker, tmp_path, "--sizes", plan, "--tune", cwd=ROOT) as served:
            with Stream(client, 0.01) as more:
                more.asked = stream.asked
                until(lambda: len(more.outputs) >= 50, 60.0, lambda: f"answers\n{served.logs()}")
            every = lambda: len(stream.outputs) + len(more.outputs) == len(stream.asked)  # noqa: E731
            until(every, 60.0, lambda: f"an outcome for every query\n{served.logs()}")
            assert served.stop() == 0, served.logs()
    return stream.judge(served)


def _of(death, stage):
    return {"worker": "b", "front": stage, "tuner": ""}[death]
