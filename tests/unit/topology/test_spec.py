"""What a pipeline file says, once it is right: units, defaults, short forms, durations of emulated batches."""

import re
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

import pytest

from spillway.lineage.errors import SpecError, UsageError
from spillway.lineage.limits import Limits
from spillway.topology.load import load, parse, remarks
from spillway.topology.quantities import duration, show_duration, size
from spillway.topology.sections import WorkersSpec
from spillway.topology.spec import EmulatedSpec, LimitsSpec, PipelineSpec, StageSpec
from spillway.topology.topics import table_of, topic_plan

FULL = """
name: plates
slo: 400ms
partitions: 6
sinks: all
limits: {max_message_bytes: 2MiB, max_rank: 4}
stages:
  - name: detect
    model: models:Detect
    arguments: {size: [1, 2], name: x}
    version: '1.2'
    batching: {size: 8, max: 16, delay: 2ms}
    workers: {fronts: 2, count: 6, device: cuda:0, where: process}
    queue: 100
    policy: expired
    choose: routes:choose
    split: routes:split
    inputs:
      image: {dtype: uint8, shape: [40, null, channels]}
      hint: {dtype: str}
      any: {}
  - {name: left, model: 'm:M', after: detect}
  - {name: right, after: [detect], emulated: {alpha: 20ms, beta: 500us}}
  - {name: both, after: [left, right], emulated: {table: {1: 1ms, 64: 8ms}}, join: {mode: any}}
"""


def test_workers_are_dealt_out_to_fronts():
    assert [WorkersSpec(count=5, fronts=3).of_front(front) for front in range(3)] == [2, 2, 1]
    assert [WorkersSpec(fronts=2).of_front(front) for front in range(2)] == [1, 1]


def test_an_unknown_stage_is_told_with_those_there_are():
    spec = parse(FULL).spec
    with pytest.raises(UsageError, match="pipeline 'plates' has no stage 'detct'; did you mean 'detect'"):
        spec.stage("detct")


def test_the_digest_is_of_what_a_file_says():
    one = parse("{name: p, slo: 400ms, stages: [{name: a, model: 'm:M'}]}")
    same = parse("# a comment\nslo: 0.4\nname: p\nstages:\n- model: m:M\n  name: a\n")
    other = parse("{name: p, slo: 401ms, stages: [{name: a, model: 'm:M'}]}")
    assert one.digest == same.digest != other.digest
    assert len(one.digest) == 64


def test_the_digest_is_of_what_differs_from_the_defaults():
    plain = "{name: p, slo: 1, stages: [{name: a, model: 'm:M'}]}"
    assert parse(plain).digest == parse(plain.replace("'m:M'", "'m:M', workers: {fronts: 1}")).digest
    ways = ("state: shared", "state: keyed", "state: {kind: shared, lease: 2s}", "workers: {standby: 1}")
    assert len({parse(plain.replace("'m:M'", f"'m:M', {way}")).digest for way in ("version: x", *ways)}) == 5


def test_a_finding_of_a_later_check_has_its_place():
    pipeline = parse(FULL, "plates.yaml")
    finding = pipeline.finding(("stages", 0, "policy"), "is unknown")
    assert str(finding) == "plates.yaml:15:13: stages[0].policy: is unknown"


def test_limits_have_the_same_names_as_those_of_messages():
    assert list(LimitsSpec.model_fields) == [field.name for field in fields(Limits)]


@pytest.mark.parametrize(
    ("written", "seconds"),
    [(0.4, 0.4), (2, 2.0), ("400ms", 0.4), ("2s", 2.0), ("500us", 0.0005), ("1.5 s", 1.5), ("2min", 120.0)],
)
def test_durations(written, seconds):
    assert duration(written) == seconds


def test_durations_for_people():
    shown = [show_duration(each) for each in (0.0, 0.4, 2.0, 0.0005, 1.25)]
    assert shown == ["0 s", "400 ms", "2 s", "500 us", "1.25 s"]


def test_sizes():
    assert [size(each) for each in (5, "8MiB", "10 kB", "1GiB")] == [5, 8 << 20, 10_000, 1 << 30]
    for wrong in (1.5, True, "8 Mb", None):
        with pytest.raises(ValueError, match="must be a number of bytes"):
            size(wrong)


def test_an_emulated_batch_takes_alpha_and_beta_for_each():
    assert EmulatedSpec(alpha=0.02, beta=0.007).duration(4) == pytest.approx(0.048)
    assert EmulatedSpec(alpha=0.02).duration(4) == 0.02
    assert EmulatedSpec(beta=0.007).duration(1) == 0.007


def test_a_table_is_a_line_between_its_sizes():
    profile = (
        parse("{name: p, slo: 1, stages: [{name: a, emulated: {table: {'64': 8ms, 1: 1ms}}}]}").spec.stages[0].emulated
    )
    assert list(profile.table) == [1, 64]
    assert profile.duration(1) == 0.001
    assert profile.duration(64) == 0.008
    assert profile.duration(8) == pytest.approx(0.001 + 7 * 0.007 / 63)
    assert EmulatedSpec(table={1: 0.01}).duration(9) == 0.01
    assert all(small < large for small, large in pairwise(profile.duration(n) for n in range(1, 65)))


def test_what_is_allowed_but_likely_not_meant():
    pipeline = parse(
        "{name: p, slo: 20ms, stages: [{name: a, emulated: {alpha: 9ms}, workers: {fronts: 5}},"
        "{name: b, after: a, model: 'm:M'}, {name: c, after: b, emulated: {beta: 12ms}}]}"
    )
    assert remarks(pipeline) == [
        "the stages a -> c take 21 ms for a batch of one, so no query can meet the SLO of 20 ms",
        "stage 'a': 12 partitions do not divide evenly by 5 fronts: some get 2, others 3",
    ]
    assert remarks(parse(FULL)) == []
    one, members = "model: 'm:M'", "ensemble: {members: {x: {model: 'm:M'}}}"
    for more in (f"{one}, default: {{y: 1}}", f"{one}, coding: {{k: 2, parity: p}}", members, one):
        stages = f"[{{name: a, choose: 'm:f', {more}}}, {{name: b, after: a, model: 'm:M'}}]"
        told = remarks(parse(f"{{name: p, slo: 1s, stages: {stages}}}"))
        told = [each for each in told if "'choose' sees default answers and reconstructed answers" in each]
        assert len(told) == (more != one)


def test_a_table_of_a_fronts_own_partitions_has_the_keys_of_its_queries():
    learner = "learners: [{name: taste, model: 'm:T', state: keyed, publish: true}]"
    for more, told in (("own: true", 0), ("key: id", 0), ("key: id, own: true", 1)):
        tables = f"tables: {{user: {{of: taste, {more}}}}}"
        stages = f"stages: [{{name: a, model: 'm:M', {tables}}}]"
        found = remarks(parse(f"{{name: p, slo: 1s, {stages}, {learner}}}"))
        assert ["input 'id' must also be the key of the query's message" in one for one in found] == [True] * told


def test_a_stage_with_tables_is_not_coded():
    learner = "learners: [{name: taste, model: 'm:T', state: keyed, publish: true}]"
    stage = "{name: a, model: 'm:M', coding: {k: 2, parity: p}, tables: {user: {of: taste}}}"
    with pytest.raises(SpecError, match=r"coding: a query with a table's row cannot be coded"):
        parse(f"{{name: p, slo: 1s, stages: [{stage}], {learner}}}")


def test_a_join_by_any_takes_the_fastest_way():
    pipeline = parse(
        "{name: p, slo: 20ms, stages: [{name: a, emulated: {alpha: 30ms}}, {name: b, emulated: {alpha: 10ms}},"
        "{name: c, after: [a, b], join: {mode: any}, emulated: {alpha: 9ms}}]}"
    )
    (told,) = remarks(pipeline)
    assert "the models take 19 ms" in told


def test_an_slo_that_the_hops_alone_use_up_is_told():
    stages = ["{name: a, model: 'm:M'}", *(f"{{name: {b}, model: 'm:M', after: {a}}}" for a, b in pairwise("abcd"))]
    chain = f"{{name: p, slo: 2ms, stages: [{', '.join(stages)}]}}"
    (told,) = remarks(parse(chain))
    assert told.startswith("a query passes 6 topics, which takes about 24 ms (about 4 ms each")
    assert told.endswith(": with an SLO of 2 ms most queries will be late")
    assert remarks(parse(chain.replace("2ms", "25ms"))) == []
    choosing = "{name: p, slo: 13ms, stages: [{name: a, model: 'm:M', choose: 'm:f'}, " + ", ".join(stages[1:]) + "]}"
    assert "passes 6 topics" in remarks(parse(choosing))[0]


def test_files_may_begin_with_a_byte_order_mark(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_bytes(b"\xef\xbb\xbf{name: p, slo: 1, stages: [{name: a, model: 'm:M'}]}")
    pipeline = load(file)
    assert pipeline.spec.name == "p"
    assert pipeline.path == file


# The page on writing pipelines: it names every field, with its default, and its examples are valid.

PAGE = (Path(__file__).parents[3] / "docs" / "pipelines.md").read_text()
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)


def table(title: str) -> dict[str, str]:
    """Field -> default, of the table below a title."""
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", section, flags=re.MULTILINE))


@pytest.mark.parametrize("text", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_is_valid(text):
    parse(text, "docs/pipelines.md")


@pytest.mark.parametrize(("title", "model"), [("The pipeline", PipelineSpec), ("A stage", StageSpec)])
def test_every_field_is_named_with_its_default(title, model):
    told = table(title)
    assert set(told) == set(model.model_fields)
    for name, field in model.model_fields.items():
        if field.is_required():
            assert told[name] == "required"
        elif isinstance(field.default, (int, float)) and field.default:
            assert told[name] == str(field.default)


def test_a_learner_is_a_pipeline_of_its_own(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text(
        "name: p\nslo: 1s\npartitions: 3\npolicy: pard\nstages:\n  - {name: a, model: 'm:A', tables: {x: {of: b}}}\n"
        "learners:\n  - {name: b, model: 'm:B', state: keyed, publish: true}\n"
    )
    whole = load(file)
    (learner,) = whole.learners
    assert learner.spec == load(f"{file}#b").spec
    assert (learner.spec.name, learner.spec.partitions, learner.path) == ("p-b", 3, tmp_path / "p.yaml#b")
    assert [(stage.name, stage.policy) for stage in learner.spec.stages] == [("b", "naive")]
    assert learner.spec.learners == ()
    assert learner.digest != whole.digest
    names = {topic.name for topic in topic_plan(learner.spec)}
    assert table_of(whole.spec, "b") == "p-b.b.table"
    assert "p-b.b.table" in names
    assert not names & {topic.name for topic in topic_plan(whole.spec)}
    assert "p.yaml:8:" in str(learner.finding(("stages", 0, "model"), "wrong"))
    with pytest.raises(SpecError, match="has no learner 'c'; known: b"):
        load(f"{file}#c")
