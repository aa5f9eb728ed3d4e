"""Planned batch sizes: the split of the SLO, its bounds, and what cannot be planned."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.topology.load import parse
from spillway.topology.problems import InvalidPipelineError
from spillway.topology.sizing import TooSlowError, plan_batches


def durations_of(pipeline):
    return {stage.name: stage.emulated.duration for stage in pipeline.written.stages}


def planned(text, **fields):
    pipeline = parse(text)
    return plan_batches(pipeline.written.model_copy(update=fields), durations_of(pipeline))


CHAIN = """
name: p
slo: 500ms
stages:
  - {name: a, emulated: {alpha: 20ms, beta: 7ms}}
  - {name: b, after: a, emulated: {alpha: 12ms, beta: 5ms}}
  - {name: c, after: b, emulated: {alpha: 8ms, beta: 4ms}}
"""


def test_each_stage_gets_a_share_of_the_slo_in_proportion_to_its_duration():
    # d(1) are 27, 17 and 12 ms: shares of 241, 151.8 and 107.1 ms; half of each is for execution.
    assert planned(CHAIN) == {"a": 14, "b": 12, "c": 11}
    a, b, c = (20 + 7 * 14, 12 + 5 * 12, 8 + 4 * 11)
    assert 2 * (a + b + c) <= 500


def test_a_batch_that_is_given_stays_and_the_others_share_what_it_leaves():
    text = CHAIN.replace("{name: a,", "{name: a, batching: {size: 30},")
    found = planned(text)  # 2 d(30) = 460 ms: 40 ms are left for b and c
    assert found == {"a": 30, "b": 1, "c": 1}
    assert planned(CHAIN.replace("{name: a,", "{name: a, batching: {size: 1},"))["b"] > planned(CHAIN)["b"]


@pytest.mark.parametrize(
    ("old", "new", "plan"),
    [
        ("{name: b,", "{name: b, batching: {delay: 100ms},", {"a": 10, "b": 9, "c": 8}),  # that time is spent
        ("{name: a,", "{name: a, batching: {max: 5},", {"a": 5, "b": 12, "c": 11}),
        ("500ms", "60ms", {"a": 1, "b": 1, "c": 1}),  # no time to wait
        (
            "500ms\nstages:\n  - {name: a,",
            "50ms\nstages:\n  - {name: a, choose: 'm:f',",
            {"a": 1, "b": 1, "c": 1},
        ),  # b or c
    ],
)
def test_delays_bounds_short_slos_and_choices_count(old, new, plan):
    assert planned(CHAIN.replace(old, new)) == plan


def test_the_longest_path_through_a_stage_counts():
    text = """
name: p
slo: 400ms
stages:
  - {name: a, emulated: {beta: 10ms}}
  - {name: slow, after: a, emulated: {beta: 30ms}}
  - {name: fast, after: a, emulated: {beta: 5ms}}
  - {name: end, after: [slow, fast], emulated: {beta: 10ms}}
"""
    # Over slow 50 ms make 400: four times 2 d(1). `fast` shares with a and end alone: 25 ms, so eight times.
    assert planned(text) == {"a": 4, "slow": 4, "fast": 8, "end": 4}


def test_a_pipeline_that_is_too_slow_for_batches_of_one_is_refused():
    with pytest.raises(TooSlowError) as caught:
        planned(CHAIN, slo=0.05)
    assert str(caught.value) == (
        "pipeline 'p': the stages a -> b -> c take 56 ms for a batch of one, so no query can meet the SLO of 50 ms; "
        "give it a longer SLO, or faster models"
    )
    with pytest.raises(InvalidPipelineError) as refused:
        parse("name: p\nslo: 10ms\nstages:\n  - {name: a, emulated: {alpha: 20ms}}\n", "p.yaml")
    assert str(refused.value) == (
        "p.yaml has 1 problem:\n  p.yaml:2:6: slo: pipeline 'p': stage a takes 20 ms for a batch of one, so no query "
        "can meet the SLO of 10 ms; give it a longer SLO, or faster models"
    )


def test_batches_are_planned_at_loading_and_anew_for_another_slo():
    pipeline = parse(CHAIN)
    assert [stage.batching.size for stage in pipeline.written.stages] == [None, None, None]
    assert [stage.batching.most for stage in pipeline.spec.stages] == [14, 12, 11]
    shorter = pipeline.for_slo(0.25)
    assert [stage.batching.most for stage in shorter.spec.stages] == list(planned(CHAIN, slo=0.25).values())
    assert shorter.spec.slo == 0.25
    assert shorter.digest == pipeline.digest
    with pytest.raises(Exception, match="no query can meet the SLO of 30 ms"):
        pipeline.for_slo(0.03)


def test_nothing_is_planned_where_a_duration_is_unknown():
    pipeline = parse(CHAIN.replace("emulated: {alpha: 8ms, beta: 4ms}", "model: 'm:M'"))
    assert [stage.batching.size for stage in pipeline.spec.stages] == [None, None, None]
    assert [stage.batching.most for stage in pipeline.spec.stages] == [64, 64, 64]
    assert set(pipeline.durations) == {"a", "b"}


@st.composite
def pipelines(draw):
    """A random graph of up to seven stages, some with a batch, a largest batch or a delay of their own."""
    lines = []
    for number in range(draw(st.integers(1, 7))):
        before = draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else set()
        fields = [f"name: s{number}", f"after: [{', '.join(f's{each}' for each in sorted(before))}]"]
        alpha, beta = draw(st.integers(0, 30)), draw(st.integers(1, 10))
        fields.append(f"emulated: {{alpha: {alpha}ms, beta: {beta}ms}}")
        most = draw(st.integers(1, 40))
        batching = [f"max: {most}"]
        if draw(st.booleans()) and draw(st.booleans()):
            batching.append(f"size: {draw(st.integers(1, most))}")
        if draw(st.booleans()) and draw(st.booleans()):
            batching.append(f"delay: {draw(st.integers(0, 20))}ms")
        fields.append(f"batching: {{{', '.join(batching)}}}")
        lines.append(f"  - {{{', '.join(fields)}}}")
    return "name: p\nslo: 10s\nsinks: all\nstages:\n" + "\n".join(lines)


def ways(pipeline, name):
    behind = pipeline.graph.successors[name]
    return [(name, *rest) for each in behind for rest in ways(pipeline, each)] or [(name,)]


@given(pipelines())
def test_plans_keep_their_bounds_grow_with_the_slo_and_fit_every_path(text):
    pipeline = parse(text)
    spec, durations = pipeline.written, durations_of(pipeline)
    paths = [way for root in pipeline.graph.roots for way in ways(pipeline, root)]
    plans = [(slo, plan_batches(spec.model_copy(update={"slo": slo}), durations)) for slo in (0.3, 0.5, 1.0, 2.0)]
    for slo, plan in plans:
        free = {stage.name for stage in spec.stages if stage.batching.size is None}
        for stage in spec.stages:
            assert 1 <= plan[stage.name] <= stage.batching.max
            assert stage.name in free or plan[stage.name] == stage.batching.size
        for way in paths:
            spent = sum(2 * durations[name](plan[name]) + spec.stage(name).batching.delay for name in way)
            # Batches of 1, and those that are given, may be more than the SLO allows for.
            if spent > slo * (1 + 1e-6):
                loose = [name for name in way if name in free and plan[name] > 1]
                assert not loose, (slo, plan, way)
    for (_, small), (_, large) in pairwise(plans):
        assert all(small[name] <= large[name] for name in small)
