"""The table of steps: each section of a stage brings its own, in order, and a plain stage has none."""

from types import SimpleNamespace

import pytest

from spillway import Pipeline
from spillway.agents.core.cache import CacheStep
from spillway.agents.core.deadlines import Deadlines, DefaultAnswer
from spillway.agents.core.dispatch import Dispatch
from spillway.agents.core.token_wait import TokenWait
from spillway.agents.live.stage.build import Known
from spillway.agents.live.stage.driver import build_steps
from spillway.agents.metrics import StageMetrics
from spillway.lineage.errors import ModelError


def steps_of(sections, *, dispatch=None, lookups=None, deterministic=True):
    text = f'name: p\nslo: 500ms\nstages:\n  - {{name: a, model: "m:M"{sections}}}\n'
    parts = SimpleNamespace(
        known=Known(deterministic=deterministic),
        metrics=StageMetrics("p", "a", 0),
        lookups=lookups,
        beside=None if dispatch is None else SimpleNamespace(dispatch=dispatch),
    )
    return build_steps(Pipeline.parse(text).spec.stage("a"), parts), parts.metrics


def test_a_plain_stage_has_none():
    steps, metrics = steps_of("")
    assert (steps, metrics.cache, metrics.dispatch, metrics.defaults) == ([], None, None, None)


def test_each_section_brings_its_step_in_order_and_its_figures():
    late = Deadlines()
    dispatch = Dispatch(width=2, release=late)
    steps, metrics = steps_of(", cache: {bytes: 1MB}, default: {y: 0}", dispatch=dispatch, lookups=object())
    assert [type(step) for step in steps] == [Deadlines, DefaultAnswer, TokenWait, CacheStep, Dispatch]
    assert (steps[0], steps[-1]) == (late, dispatch)
    assert (metrics.cache, metrics.dispatch) == (steps[3].cache, dispatch)
    steps[1].given = 3
    assert metrics.defaults() == 3


def test_copies_that_settle_at_once_need_no_last_moments():
    steps, _ = steps_of("", dispatch=Dispatch())
    assert [type(step) for step in steps] == [Dispatch]


def test_a_model_that_does_not_answer_alike_has_no_cache():
    with pytest.raises(ModelError, match="stage 'a': 'cache' is for models that answer equal queries alike"):
        steps_of(", cache: {bytes: 1MB}", deterministic=False)
