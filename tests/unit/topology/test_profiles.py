"""Profile files: what is written is read, what is wrong is told, and a pipeline takes its durations from one."""

import pytest

from spillway.lineage.errors import SpecError
from spillway.topology.load import load
from spillway.topology.problems import InvalidPipelineError
from spillway.topology.profiles import read_profiles, write_profiles
from tests.unit.topology.measured import CONDITIONS, profile


def test_what_is_written_is_read(tmp_path):
    told = {"detect": profile(b16=0.04, b1=0.0123456789, b4=0.02), "12": profile(b1=1e-7)}
    write_profiles(tmp_path / "p.yaml", told)
    found = read_profiles(tmp_path / "p.yaml")
    assert found["detect"].measured == CONDITIONS
    assert list(found["detect"].batches) == [1, 4, 16]
    assert found["detect"].batches[1].p50 == 0.0123457  # six digits
    assert found["12"] == told["12"]
    assert "\n      4: {p50: 0.02, p95: 0.04, memory: 1048576, runs: 30}\n" in (tmp_path / "p.yaml").read_text()
    assert [file.name for file in tmp_path.iterdir()] == ["p.yaml"]


def test_between_two_sizes_durations_lie_on_a_line():
    duration = profile(b1=0.01, b4=0.04, b8=0.05).duration()
    assert [duration(n) for n in (1, 2, 4, 6, 8)] == pytest.approx([0.01, 0.02, 0.04, 0.045, 0.05])


@pytest.mark.parametrize(
    ("before", "after", "error"),
    [
        ("spillway-profile: 1", "spillway-profile: 2", ":2:19: spillway-profile: Input should be 1"),
        ("p50: 0.01", "p50: -1", ":17:16: stages.a.batches[1].p50: Input should be greater than 0"),
        ("p50: 0.01", "p50: fast", ":17:16: stages.a.batches[1].p50: Input should be a valid number"),
        ("threads: 1", "threads: 1\n      cores: 3", ":16:14: stages.a.measured.cores: Extra inputs are not permitted"),
        ("threads: 1", "threads: 1\n      threads: 1", ":16:7: stages.a.measured.threads: is given twice"),
        ("stages:", "stages: {", ":"),
    ],
)
def test_what_is_wrong_with_a_file(tmp_path, before, after, error):
    write_profiles(tmp_path / "p.yaml", {"a": profile(b1=0.01)})
    text = (tmp_path / "p.yaml").read_text()
    assert before in text
    (tmp_path / "p.yaml").write_text(text.replace(before, after))
    with pytest.raises(SpecError) as caught:
        read_profiles(tmp_path / "p.yaml")
    assert f"{tmp_path / 'p.yaml'}{error}" in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(SpecError, match=r"cannot read the profile file .*p\.yaml: No such file"):
        read_profiles(tmp_path / "p.yaml")


PIPELINE = """\
name: p
slo: 400ms
profile: p.profile.yaml
stages:
  - {name: a, model: "m:M", batching: {max: 8}}
  - {name: b, emulated: {beta: 5ms}, after: a}
"""


def loaded(tmp_path, text=PIPELINE, **options):
    (tmp_path / "p.yaml").write_text(text)
    return load(tmp_path / "p.yaml", **options)


def refused(tmp_path, text=PIPELINE):
    with pytest.raises(InvalidPipelineError) as caught:
        loaded(tmp_path, text)
    return [str(finding).removeprefix(f"{tmp_path}/") for finding in caught.value.findings]


def test_a_pipeline_takes_its_durations_and_its_plan_from_the_profile(tmp_path):
    write_profiles(tmp_path / "p.profile.yaml", {"a": profile(b1=0.01, b8=0.05), "gone": profile(b1=1.0)})
    pipeline = loaded(tmp_path)
    assert pipeline.durations["a"](8) == 0.05
    assert pipeline.durations["b"](2) == 0.01
    # d(1) are 10 and 5 ms: shares of 266.7 and 133.3 ms.
    assert [stage.batching.size for stage in pipeline.spec.stages] == [8, 13]
    assert [stage.batching.size for stage in pipeline.written.stages] == [None, None]


def test_a_stage_may_have_a_file_of_its_own(tmp_path):
    write_profiles(tmp_path / "a.yaml", {"a": profile(b1=0.02, b8=0.05)})
    text = PIPELINE.replace("profile: p.profile.yaml\n", "").replace('"m:M",', '"m:M", profile: a.yaml,')
    assert loaded(tmp_path, text).durations["a"](1) == 0.02


def test_a_pipeline_can_be_read_before_there_is_a_profile(tmp_path):
    pipeline = loaded(tmp_path, profiled=False)
    assert set(pipeline.durations) == {"b"}
    assert refused(tmp_path)[0].startswith("p.yaml:3:10: profile: cannot read the profile file ")
    assert refused(tmp_path)[0].endswith("; make one with 'spillway plan profile'")


@pytest.mark.parametrize(
    ("profiles", "error"),
    [
        (
            {"c": profile(b1=0.01)},
            "has no profile of stage 'a'; known: c; run 'spillway plan profile' with --stage a to add it",
        ),
        ({"a": profile(b2=0.01, b8=0.1)}, "begins with a batch of 2; run 'spillway plan profile' with --stage a"),
        (
            {"a": profile(b1=0.01, b4=0.1)},
            "ends with a batch of 4, and batching.max is 8; run 'spillway plan profile' with --stage a",
        ),
    ],
)
def test_a_profile_that_does_not_serve_the_stage(tmp_path, profiles, error):
    write_profiles(tmp_path / "p.profile.yaml", profiles)
    (found,) = refused(tmp_path)
    assert found.startswith("p.yaml:3:10: profile: ")
    assert found.endswith(error)


def test_a_pipeline_too_slow_by_its_profile(tmp_path):
    write_profiles(tmp_path / "p.profile.yaml", {"a": profile(b1=0.396, b8=0.5)})
    (found,) = refused(tmp_path)
    assert "p.yaml:2:6: slo: pipeline 'p': the stages a -> b take 401 ms for a batch of one" in found


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("model", "m:N", "it was measured with model m:M, not m:N"),
        ("source", "sha256:f", "the file of the model, or of its module, has changed since"),
        ("arguments", "sha256:f", "the model's arguments have changed since"),
        ("weights", "sha256:f", "the files that the model's arguments name have changed since"),
        ("version", "2", "the model's version was 1e5, and is 2 now"),
        ("where", "process", "the model was a thread then, and is a process now"),
        ("device", "cuda", "it was measured on cpu, and the stage runs on cuda"),
        ("device_name", "B", "it was measured on another device, A CPU: @ 2 GHz, and this one is B"),
        ("torch", "2.0", "it was measured with torch None, and torch 2.0 is installed"),
        ("threads", 4, "it was measured with 1 threads for a torch operation, and 4 are used now"),
    ],
)
def test_why_a_profile_does_not_hold(field, value, why):
    assert CONDITIONS.stale(CONDITIONS) is None
    assert CONDITIONS.stale(CONDITIONS.model_copy(update={field: value})) == why


def test_a_device_that_this_machine_does_not_have_cannot_be_compared():
    assert CONDITIONS.stale(CONDITIONS.model_copy(update={"device_name": None})) is None
