"""A pipeline that is scaled while it serves: a stage of threads, one of processes, and an emulated one."""

import threading
import time

import pytest
import yaml

from spillway.agents.supervise.registry import entries
from spillway.agents.supervise.scrape import scrape
from spillway.lineage.message import PREDICTION
from spillway.lineage.metric_names import MODEL_INSTANCES
from tests.acceptance.serving import ROOT, command, serving
from tests.waiting import PATIENT_SECONDS, until

MODELS = "tests.acceptance.scaled_models"
SCALED = {"a": (2, 1), "b": (2, 1), "c": (3, 2)}  # up to, and down to


class Stream:
    """Queries at a steady rate while the context is open, and the outputs of their outcomes."""

    def __init__(self, client, pace=0.03):
        self.asked, self.outputs, self.pace = [], [], pace  # in seconds between two queries; it may be changed
        self._client, self._stop = client, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_exception):
        self._stop.set()
        self._thread.join()

    def _run(self):
        while not self._stop.wait(self.pace):
            n = len(self.asked)
            self.asked.append(f"q{n}")
            future = self._client.submit({"n": n}, request_id=f"q{n}", key=f"k{n}")
            future.add_done_callback(lambda future: self.outputs.append(future.result().outputs))

    def workers(self, kind):
        return {output[kind] for output in self.outputs[-60:]}

    def judge(self, served):
        served.judge(self.asked, "n", lambda request_id, kind, n: kind == PREDICTION and request_id == f"q{n}")


@pytest.fixture
def pipeline(unique_name, tmp_path):
    first = {"name": "a", "model": f"{MODELS}:Thread", "workers": {"timeout": "20s"}}
    second = {"name": "b", "model": f"{MODELS}:Process", "after": "a", "workers": {"where": "process"}}
    third = {"name": "c", "emulated": {"alpha": "1ms", "beta": "1ms"}, "after": "b", "workers": {"fronts": 2}}
    spec = {"name": unique_name, "slo": PATIENT_SECONDS, "partitions": 4, "policy": "naive"}
    path = tmp_path / "pipeline.yaml"
    path.write_text(yaml.safe_dump({**spec, "stages": [{**first, "batching": {"size": 2}}, second, third]}))
    return path


def instances(served, stage):
    """The workers of each of its fronts that answers, most first."""
    fronts = [entry for entry in entries(served.run_dir, served.pipeline) if entry.stage == stage and entry.alive()]
    found = [scrape(entry, time.monotonic()) for entry in fronts]
    return sorted((snapshot.value(MODEL_INSTANCES) for snapshot in found if snapshot is not None), reverse=True)


def dealt(stage, count):
    return [2, 1] if (stage, count) == ("c", 3) else [1, 1] if stage == "c" else [count]


@pytest.mark.parametrize("die", ["b", pytest.param("abc", marks=pytest.mark.nightly)])
def test_stages_are_scaled_up_and_down_under_load_and_a_killed_front_comes_back_with_its_size(
    broker, unique_name, pipeline, tmp_path, die
):
    with serving(pipeline, unique_name, broker, tmp_path, cwd=ROOT) as served:
        with served.client() as client, Stream(client) as stream:
            until(lambda: len(stream.outputs) >= 60, 60.0, "answers")
            assert [len(stream.workers(kind)) for kind in ("thread", "process")] == [1, 1]
            for stage, (most, _) in SCALED.items():
                code, said = served.change("scale", pipeline, stage, str(most), "--why", "test")
                assert code == 0, said + served.logs()
                assert f"{stage}: {most} ready" in said
                assert instances(served, stage) == dealt(stage, most)
            until(lambda: [len(stream.workers(kind)) for kind in ("thread", "process")] == [2, 2], 60.0, "all answer")
            killed = {stage: served.kill(stage) for stage in die}
            for stage, pid in killed.items():
                served.await_replacement(stage, pid)
                wanted = dealt(stage, SCALED[stage][0])
                until(lambda stage=stage, n=wanted: instances(served, stage) == n, 60.0, f"the workers of {stage}")
            for stage, (most, least) in SCALED.items():
                code, said = served.change("scale", pipeline, stage, str(least))
                assert code == 0, said + served.logs()
                assert f"was {most}" in said
                assert instances(served, stage) == dealt(stage, least)
            since = len(stream.outputs) + 120
            until(lambda: len(stream.outputs) >= since, 60.0, "more answers")
            assert [len(stream.workers(kind)) for kind in ("thread", "process")] == [1, 1]
            stream.__exit__()
            until(lambda: len(stream.outputs) == len(stream.asked), 60.0, "an outcome for every query")
        assert served.stop() == 0, served.logs()
    stream.judge(served)


@pytest.mark.nightly
def test_the_next_serve_of_the_same_file_has_the_tables_size_and_of_a_changed_one_its_own(
    broker, unique_name, pipeline, tmp_path
):
    with serving(pipeline, unique_name, broker, tmp_path, cwd=ROOT) as served:
        assert served.change("scale", pipeline, "a", "2")[0] == 0
        assert served.stop() == 0
    (tmp_path / "ready").unlink(missing_ok=True)
    with serving(pipeline, unique_name, broker, tmp_path, cwd=ROOT) as served:
        assert instances(served, "a") == [2]
        assert served.stop() == 0
    pipeline.write_text(pipeline.read_text().replace("timeout: 20s", "timeout: 21s"))
    (tmp_path / "ready").unlink(missing_ok=True)
    with serving(pipeline, unique_name, broker, tmp_path, cwd=ROOT) as served:
        assert instances(served, "a") == [1]
        changed = pipeline.read_text()
        pipeline.write_text(changed.replace("timeout: 21s", "timeout: 22s"))
        code, said = served.change("scale", pipeline, "a", "2")
        assert (code, "is served from another version of" in said) == (2, True), said
        pipeline.write_text(changed)


def test_what_was_never_served_cannot_be_scaled(broker, pipeline):
    done = command("change", "scale", pipeline, "a", "2", "--bootstrap", broker)
    assert done.returncode == 1
    assert "is it running there" in done.stderr
