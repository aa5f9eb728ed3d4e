"""`spillway plan provision`: a catalogue, a profile file and a trace in, a plan out; and what is wrong with any."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from spillway.agents.cli.main import run
from spillway.agents.sim.estimator import Estimator
from spillway.lineage.errors import SpecError
from spillway.lineage.message import StageTiming
from spillway.topology.capacity.hardware import options_of, read_catalogue
from spillway.topology.capacity.plan import read_plan
from spillway.topology.capacity.planner import Sizing
from spillway.topology.load import load
from spillway.topology.profiles import read_profile_file, read_profiles, write_profiles
from tests.unit.topology.measured import profile
from tests.unit.whatif.recordings import Taken

EXAMPLES = Path(__file__).parents[4] / "examples" / "inferline"
GIVEN = ("--hardware", "hw.yaml", "--profiles", "prof.yaml")
PIPELINE = """\
name: p
slo: 200ms
sinks: all
stages:
  - {name: a, emulated: {beta: 5ms}, choose: "m:f"}
  - {name: b, after: a, emulated: {beta: 5ms}}
  - {name: c, after: a, emulated: {beta: 2ms}, workers: {fronts: 2}}
"""
HARDWARE = """\
spillway-hardware: 1
kinds:
  cpu: {price: 0.05, memory: 1GiB, runs: core}
  k80: {price: 0.634, count: 8, memory: 12GiB, load: 7s, runs: emulated}
"""
PROFILES = """\
spillway-profile: 1
hardware:
  cpu:
    a: {beta: 5ms, most: 4}
    b: {beta: 40ms, memory: 2GiB}
  k80:
    b: {table: {1: 10ms, 8: 24ms}, load: 9s}
"""


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in (("p.yaml", PIPELINE), ("hw.yaml", HARDWARE), ("prof.yaml", PROFILES)):
        Path(name).write_text(text)
    return tmp_path


def test_a_plan_is_printed_and_written(files, capsys):
    choose = ("--choose", "a=b:.25,b+c:.25,c:.5", "--hop", "1ms", "--gate", "3ms")
    arguments = ("plan", "provision", "p.yaml", "poisson:60", "--duration", "30", *GIVEN, *choose, "-o", "plan.yaml")
    assert run([*arguments]) == 0
    out = capsys.readouterr().out
    plan = read_plan(files / "plan.yaml")
    assert (plan.stages["a"].hardware, plan.stages["b"].hardware) == ("cpu", "k80")  # b needs more memory than cpu has
    assert plan.kept == {"c": 2}
    assert plan.stages["b"].share == pytest.approx(0.5, abs=0.05)
    assert plan.stages["b"].load == 9
    assert plan.stages["a"].load == 5
    assert plan.stages["b"].ratio == pytest.approx(
        plan.trace.rate * plan.stages["b"].share / plan.stages["b"].count / plan.stages["b"].throughput, rel=1e-4
    )
    assert plan.cost == pytest.approx(sum(stage.count * stage.price for stage in plan.stages.values()), rel=1e-5)
    assert plan.p99 <= plan.slo == 0.2
    assert 0.015 < plan.trace.service_time < 0.025  # 5 + 10 ms, two hops and the gate
    assert plan.envelope[0][0] == pytest.approx(plan.trace.service_time)
    assert f"cost {plan.cost:.3f} per hour" in out
    assert "c: not planned (a state, several fronts or copies), and not part of the cost" in out
    assert "1. the model's sizes: a: 1 x cpu" in out
    assert run([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cost"] == pytest.approx(plan.cost, rel=1e-5)


def test_what_a_batch_takes_beyond_its_model_is_counted_and_not_emulated_again(files, capsys):
    arguments = ("plan", "provision", "p.yaml", "poisson:60", "--duration", "30", *GIVEN, "--choose", "a=b:1", "--json")
    found = []
    for overhead in ("0", "4ms"):
        assert run([*arguments, "--overhead", overhead]) == 0
        found.append(json.loads(capsys.readouterr().out))
    before, after = (plan["stages"]["a"] for plan in found)
    assert [each["takes"]["1"] for each in (before, after)] == pytest.approx([0.005, 0.005])
    takes = after["takes"][str(after["batch"])]
    assert after["throughput"] == pytest.approx(after["batch"] / (takes + 0.004), rel=1e-4)
    times = [plan["trace"]["service_time"] for plan in found]
    assert times[1] >= times[0] + 0.007  # two stages


@pytest.mark.parametrize(
    ("file", "before", "after", "error"),
    [
        ("hw.yaml", "price: 0.05", "price: -1", "hw.yaml:3:16: kinds.cpu.price: Input should be greater than or equal"),
        ("hw.yaml", "runs: core", "runs: tpu", "hw.yaml:3:42: kinds.cpu.runs: Input should be 'core', 'cuda' or"),
        ("hw.yaml", "load: 7s", "load: soon", "kinds.k80.load: must be a duration, such as 0.4, '400ms'"),
        ("hw.yaml", "count: 8", "count: 0", "kinds.k80.count: Input should be greater than or equal to 1"),
        ("hw.yaml", "k80", "t4", "prof.yaml: hardware.k80: the catalogue has no such kind"),
        (
            "prof.yaml",
            "    a: {beta: 5ms, most: 4}\n",
            "",
            "stage 'a' cannot run on any of cpu, k80: it has no profile",
        ),
        ("prof.yaml", "{beta: 5ms, most: 4}", "{most: 4}", "hardware.cpu.a: give alpha and beta, or a table"),
        ("prof.yaml", "1: 10ms, 8: 24ms", "1: 300ms", "p99 is 317 ms with the fastest hardware"),
        ("prof.yaml", "1: 10ms, 8: 24ms", "1: 100ms", "stage 'b' is too slow for this trace even with every unit"),
    ],
)
def test_what_is_wrong_is_told_with_its_place_and_the_fix(files, capsys, file, before, after, error):
    text = Path(file).read_text()
    assert before in text
    Path(file).write_text(text.replace(before, after))
    arguments = ("plan", "provision", "p.yaml", "poisson:900", "--duration", "5", *GIVEN, "--choose", "a=b:1")
    assert run([*arguments]) == 2
    assert error in capsys.readouterr().err


def test_a_pipeline_without_a_profile_file_is_told_how_to_get_one(files, capsys):
    assert run(["plan", "provision", "p.yaml", "poisson:9", "--duration", "5", "--hardware", "hw.yaml"]) == 2
    assert "p.yaml has no profile file; make one ('spillway plan profile') or give --profiles" in (
        capsys.readouterr().err
    )


def test_without_numba_it_says_so_and_the_simulator_gives_the_same(files, capsys, monkeypatch):
    arguments = ("plan", "provision", "p.yaml", "poisson:60", "--duration", "5", *GIVEN, "--choose", "a=b:1", "--json")
    assert run([*arguments]) == 0
    plan = json.loads(capsys.readouterr().out)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "numba" else 1)
    assert run([*arguments]) == 0
    out, err = capsys.readouterr()
    slow = json.loads(out)
    assert err.startswith("note: numba is not installed, so estimates take")
    assert any("pip install 'spillway[capacity]'" in remark for remark in slow["remarks"])
    assert slow["stages"] == plan["stages"]


def test_the_simulator_estimates_what_the_kernel_cannot(files):
    pytest.importorskip("numba")
    text = PIPELINE.partition("  - {name: b")[0].replace("sinks: all\n", "")
    Path("p.yaml").write_text(text.replace(', choose: "m:f"', ", batching: {delay: 4ms}"))
    estimator = Estimator(load("p.yaml"), np.array([0.0, 1.0]))
    assert "stage 'a' has a batching delay" in estimator.remark
    sizes = {"a": Sizing(1, 4, lambda count: 0.01 * count)}
    assert estimator(sizes, 1.0, 0) == pytest.approx([0.014, 0.014])
    assert estimator(sizes, 0.01, 1) is None


def test_hardware_figures_survive_a_new_profile(files):
    held = read_profile_file(files / "prof.yaml")
    write_profiles(files / "prof.yaml", {}, held.hardware)
    assert read_profile_file(files / "prof.yaml") == held
    assert read_profiles(files / "prof.yaml") == {}


def test_the_committed_catalogue_and_profiles_fit_their_pipelines():
    catalogue, profiles = read_catalogue(EXAMPLES / "hardware.yaml"), read_profile_file(EXAMPLES / "profiles.yaml")
    assert all(kind.source for kind in catalogue.kinds.values())
    assert all(each.source for stages in profiles.hardware.values() for each in stages.values())
    for name in ("social", "image"):
        options = options_of(load(EXAMPLES / f"{name}.yaml"), catalogue, profiles, "profiles.yaml")
        best = options["classify"]
        assert [option.kind for option in best] == ["v100", "k80", "cpu"]
        assert best[1].throughput(32) == pytest.approx(50.6, rel=0.01)  # the thesis, section 4.2
        assert best[2].throughput(1) == pytest.approx(0.6, rel=0.01)


def test_a_catalogue_that_is_not_there(tmp_path):
    with pytest.raises(SpecError, match="cannot read the hardware catalogue"):
        read_catalogue(tmp_path / "none.yaml")


def test_what_was_measured_here_speaks_of_a_core_or_a_gpu(files):
    Path("p.yaml").write_text("name: p\nslo: 1s\nstages:\n  - {name: a, model: 'm:M', batching: {max: 3}}\n")
    Path("hw.yaml").write_text(
        "spillway-hardware: 1\nkinds:\n  gpu: {price: 2, runs: cuda}\n  cpu: {price: 1, memory: 1MiB, runs: core}\n"
    )
    pipeline, catalogue = load("p.yaml", profiled=False), read_catalogue(Path("hw.yaml"))
    for device, kind, memory in (("cpu", "cpu", 1 << 19), ("cuda:0", "gpu", 1 << 40), ("cpu", None, 2 << 20)):
        write_profiles(Path("prof.yaml"), {"a": profile(device, memory, 3.5, b1=0.01, b4=0.04)})
        profiles = read_profile_file(Path("prof.yaml"))
        if kind is None:
            with pytest.raises(SpecError, match="'a' cannot run on any of gpu, cpu: it needs 2 MiB, and cpu has 1 MiB"):
                options_of(pipeline, catalogue, profiles, "prof.yaml")
        else:
            (option,) = options_of(pipeline, catalogue, profiles, "prof.yaml")["a"]
            assert (option.kind, option.load) == (kind, 3.5)
            assert option.durations == pytest.approx((0.01, 0.02, 0.03))


def test_queries_of_a_recording_go_the_ways_that_they_went(files, capsys):
    text = PIPELINE.replace("name: p\n", "name: small\n")
    Path("p.yaml").write_text(text)
    with Taken(files / "taken", text) as taken:
        for number in range(300):
            chosen = ("b", "c") if number % 10 == 0 else ("c",)
            taken.query(f"q{number}", number / 100, budget=1)
            timings = [StageTiming(stage, 0, 0, 0.005, 1) for stage in ("a", *chosen)]
            taken.outcome(f"q{number}", number / 100 + 0.02, timings, path={"a": chosen})
    assert run(["plan", "provision", "p.yaml", "taken", *GIVEN, "--json", "--html", "plan.html"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["stages"]["b"]["share"] == 0.1  # to the query, not about as often
    page = Path("plan.html").read_text()
    assert "Cost over the SLO" in page
    assert page.count("<svg") == 1


LEFT_OUT = {
    "an ensemble": "default: {y: 1}, ensemble: {selection: exp4, members: {x: {model: m:M}}}",
    "variants": "variants: {app: d, of: {x: {model: m:M, architecture: x, accuracy: .9, takes: {1: 10ms}}}}",
    "a Velox model": "model: 'velox:m:Songs', tables: {user: {of: taste}}",
}
LEARNERS = "learners: [{name: taste, model: 'velox:m:Songs', state: {kind: keyed}, publish: true}]\n"


@pytest.mark.parametrize("what", LEFT_OUT)
@pytest.mark.parametrize("place", ["first", "between", "last", "alone"])
def test_stages_that_nobody_measures_keep_their_sizes_and_are_named(files, capsys, what, place):
    stages = {"a": "model: 'm:A'", "b": "model: 'm:B'"}
    order = {"first": ["s", "a", "b"], "between": ["a", "s", "b"], "last": ["a", "b", "s"], "alone": ["s"]}[place]
    lines = [
        f"  - {{name: {name}, {stages.get(name, LEFT_OUT[what])}{f', after: {before}' if before else ''}}}\n"
        for before, name in zip(["", *order], order, strict=False)
    ]
    learners = LEARNERS if "Velox" in what else ""
    Path("p.yaml").write_text(f"name: p\nslo: 200ms\nstages:\n{''.join(lines)}{learners}")
    Path("prof.yaml").write_text("spillway-profile: 1\nhardware: {cpu: {a: {beta: 5ms}, b: {beta: 9ms}}}\n")
    code = run(["plan", "provision", "p.yaml", "poisson:20", "--duration", "10", *GIVEN, "-o", "plan.yaml"])
    told = capsys.readouterr()
    if place == "alone":
        assert code == 2
        assert f"there is no stage to plan: s has {what}" in told.err
        return
    assert code == 0, told.err
    plan = read_plan(files / "plan.yaml")
    assert (set(plan.stages), plan.kept) == ({"a", "b"}, {"s": 1})
    assert any(f"estimated to take no time: s has {what}" in remark for remark in plan.remarks)
    assert f"estimated to take no time: s has {what}" in told.out
