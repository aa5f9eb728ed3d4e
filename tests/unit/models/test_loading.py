import asyncio
import subprocess
import sys
import threading

import pytest

from spillway.agents.models import plain as emulated
from spillway.agents.models.adapters import placed
from spillway.agents.models.execution import Instances, Runner
from spillway.agents.models.inputs import Inputs
from spillway.agents.models.loading import load_function, load_model
from spillway.agents.models.plain import EmulatedModel
from spillway.lineage.errors import ModelError


def inputs(**values):
    return Inputs(values, {"p": 1}, "r")


def test_a_model_is_constructed_with_its_arguments(samples):
    model = load_model("s", f"{samples}:Doubler", {"factor": 3})
    assert model.predict([inputs(x=2)]) == [{"y": 6}]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("sample_models", "write it as module:Name"),
        ("nowhere_at_all:Thing", "there is no module 'nowhere_at_all'"),
        ("sample_models:Missing", "has no 'Missing'"),
        ("sample_models:CONSTANT", "is not a class"),
        ("sample_models:NoPredict", "has no method predict"),
        ("sample_models:BadConstructor", "no weights here"),
        ("sample_models:Doubler.nope", "has no 'Doubler.nope'"),
    ],
)
def test_what_cannot_be_loaded_is_named_with_its_stage_and_cause(samples, name, says):
    with pytest.raises(ModelError, match=says) as caught:
        load_model("detect", name, {})
    assert "stage 'detect'" in str(caught.value)
    assert name in str(caught.value)


def test_wrong_arguments_are_named(samples):
    with pytest.raises(ModelError, match="unexpected keyword argument 'size'"):
        load_model("s", f"{samples}:Doubler", {"size": 1})


def test_a_module_that_fails_to_import_names_the_cause(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken_user_module.py").write_text("import a_module_that_is_not_there\n")
    with pytest.raises(ModelError, match="a_module_that_is_not_there"):
        load_model("s", "broken_user_module:Model", {})


def test_functions_are_found_and_must_be_callable(samples):
    assert load_function("s", "join", f"{samples}:not_a_class")() is None
    with pytest.raises(ModelError, match="stage 's': split 'sample_models:CONSTANT': int is not a function"):
        load_function("s", "split", f"{samples}:CONSTANT")


def test_torch_is_not_imported_for_a_model_that_does_not(samples):
    code = (
        "import sys; from spillway.agents.models.loading import load_model;"
        "from spillway.agents.models.loading import limit_torch_threads;"
        "import spillway.agents.models.execution, spillway.agents.workers.single, spillway.agents.models.plain;"
        "load_model('s', 'sample_models:Doubler', {}); limit_torch_threads(1);"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_inputs_travel_to_another_process_whole():
    import pickle

    copy = pickle.loads(pickle.dumps(inputs(x=1)))
    assert (copy, copy.parameters, copy.request_id) == ({"x": 1}, {"p": 1}, "r")


def test_a_module_that_another_of_its_name_hides_is_told_where_that_is(tmp_path, monkeypatch):
    import colorsys

    monkeypatch.chdir(tmp_path)
    (tmp_path / "colorsys.py").write_text("class Detect: ...\n")
    with pytest.raises(ModelError, match=r"module 'colorsys' has no 'Detect'; it is .*rename yours") as caught:
        load_model("s", "colorsys:Detect", {})
    assert f"it is {colorsys.__file__}, which is found before {tmp_path / 'colorsys.py'}" in str(caught.value)


def test_a_model_that_needs_torch_names_the_extra_where_it_is_missing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "user_of_torch.py").write_text("import torch\n")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModelError) as caught:
        load_model("s", "user_of_torch:Model", {})
    assert caught.value.exit_code == 2  # so a supervisor does not try again
    assert str(caught.value) == (
        "stage 's': model 'user_of_torch:Model' needs torch: torch is not installed; it comes with an extra: "
        "pip install 'spillway[torch]'"
    )


def test_it_sleeps_as_long_as_the_batch_takes_and_passes_inputs_on(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(emulated.time, "perf_counter", lambda: clock[0])

    def sleep(seconds):
        clock[0] += seconds * 0.75  # wakes early

    monkeypatch.setattr(emulated.time, "sleep", sleep)
    batch = [Inputs({"x": 1}, {}, "a"), Inputs({"x": 2}, {}, "b")]
    assert EmulatedModel(lambda size: 1.0 + 0.5 * size).predict(batch) == [{"x": 1}, {"x": 2}]
    assert clock[0] == pytest.approx(102.0)


async def run(count, jobs, work):
    done, broken = asyncio.Queue(), []
    instances = Instances(
        [Runner(f"instance-{number}") for number in range(count)],
        asyncio.get_running_loop(),
        work=work,
        done=lambda job, result: done.put_nowait((job, result)),
        broken=broken.append,
    )
    for instance, job in jobs:
        instances.submit(instance, job)
    results = [await asyncio.wait_for(done.get(), 5) for _ in jobs] if work is not broken_work else []
    if work is broken_work:
        while not broken:
            await asyncio.wait_for(asyncio.to_thread(lambda: None), 5)
    assert instances.close(5.0)
    return results, broken


def broken_work(_instance, _job):
    raise RuntimeError("ours")


def test_jobs_of_one_instance_run_in_order_off_the_loops_thread():
    threads = set()

    def work(instance, job):
        threads.add(threading.current_thread().name)
        return job * 10

    results, _ = asyncio.run(run(1, [(0, 1), (0, 2), (0, 3)], work))
    assert results == [(1, 10), (2, 20), (3, 30)]
    assert threads == {"instance-0"}


def test_instances_run_side_by_side():
    barrier = threading.Barrier(2, timeout=5)

    def work(instance, job):
        barrier.wait()
        return instance

    results, _ = asyncio.run(run(2, [(0, "a"), (1, "b")], work))
    assert sorted(results) == [("a", 0), ("b", 1)]


def test_an_error_of_the_drivers_own_is_reported():
    _, broken = asyncio.run(run(1, [(0, 1)], broken_work))
    assert str(broken[0]) == "ours"


def test_a_file_that_an_argument_names_is_found_as_modules_are(tmp_path, monkeypatch):
    here, beside = tmp_path / "here", tmp_path / "beside"
    for folder in (here, beside):
        folder.mkdir()
    (beside / "weights.bin").touch()
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", [*sys.path, str(beside)])
    given = {"weights": "weights.bin", "device": "cpu", "none": "absent.bin", "share": 0.5}
    assert placed(given) == {**given, "weights": str(beside / "weights.bin")}
    (here / "weights.bin").touch()
    assert placed(given) == given
