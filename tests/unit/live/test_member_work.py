"""What a member with a cache sees of a query, and what is kept of its answer."""

from types import SimpleNamespace

import numpy as np
import pytest

from spillway.agents.live.stage.batch_work import Prepared
from spillway.agents.live.stage.build import Known, check_remembers
from spillway.agents.live.stage.members import MemberWork
from spillway.agents.models.inputs import Inputs
from spillway.lineage.errors import ModelError
from spillway.topology.sections import CacheSpec
from spillway.topology.spec import StageSpec


def work(caches):
    prepared = Prepared(None, [None], [Inputs({"x": 1}, {}, "q1", "k1")], [0])
    return MemberWork(SimpleNamespace(prepare=lambda _batch: prepared), "label", caches=caches)


@pytest.mark.parametrize(("caches", "seen"), [(True, ("", "")), (False, ("q1", "k1"))])
def test_a_member_with_a_cache_sees_no_id_and_no_key(caches, seen):
    (inputs,) = work(caches).prepare(None).inputs
    assert (inputs.request_id, inputs.key, dict(inputs)) == (*seen, {"x": 1})


def test_what_is_kept_holds_no_more_than_the_answer():
    batch = np.zeros((1_000, 10), np.float32)
    answer = {"outputs": {"label": batch[3], "more": batch}}
    kept = work(caches=True).result(None, 0, answer, 0.1)
    assert kept.value.base is None
    assert 40 <= kept.size < 200
    assert work(caches=False).result(None, 0, answer, 0.1).size == 0


def test_a_model_that_does_not_say_that_it_answers_alike_has_no_cache():
    spec = StageSpec(name="s", model="models:Dice", cache=CacheSpec(bytes=1_000))
    check_remembers("stage 's', member 'dice'", spec, Known(deterministic=True))
    with pytest.raises(ModelError, match=r"^stage 's', member 'dice': 'cache' is .* models:Dice does not declare"):
        check_remembers("stage 's', member 'dice'", spec, Known())
