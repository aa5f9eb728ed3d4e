"""What a query asks is read from its parameters, or refused by the parameter's name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.lineage.errors import UsageError
from spillway.topology.variants.needs import Needs, needs_of


@pytest.mark.parametrize(
    ("asked", "needs"),
    [
        ({}, Needs("faces")),
        ({"latency": "200ms", "accuracy": "70%"}, Needs("faces", 0.2, 0.7)),
        ({"latency": "0.2", "accuracy": "0.7"}, Needs("faces", 0.2, 0.7)),
        ({"latency": 0.2, "accuracy": 0.7, "app": "faces"}, Needs("faces", 0.2, 0.7)),
        ({"model": "ResNet50"}, Needs("faces", model="ResNet50")),
        ({"variant": "resnet50-cpu", "latency": "1s"}, Needs("faces", 1.0, variant="resnet50-cpu")),
    ],
)
def test_what_a_query_asks_is_read(asked, needs):
    assert needs_of(asked, "faces") == needs


@pytest.mark.parametrize(
    ("asked", "app", "said"),
    [
        ({"latancy": "1s"}, "faces", "no parameter 'latancy'"),
        ({}, None, "names no application; give 'app'"),
        ({"app": "plates"}, "faces", "answers for 'faces', not for 'plates'"),
        ({"app": ""}, None, "app: must be a name"),
        ({"model": 3}, "faces", "model: must be a name, not 3"),
        ({"model": "a", "variant": "b"}, "faces", "a model or a variant, not both"),
        ({"model": "a", "accuracy": 0.7}, "faces", "leave 'accuracy' out"),
        ({"latency": "soon"}, "faces", "latency: must be a duration"),
        ({"latency": "0"}, "faces", "latency: must be more than 0"),
        ({"latency": "inf"}, "faces", "latency: must be a duration"),
        ({"latency": True}, "faces", "latency: must be a duration"),
        ({"accuracy": "70"}, "faces", "accuracy: must be from 0 to 1, or a percentage"),
        ({"accuracy": "high"}, "faces", "accuracy: must be a share, as 0.7 or '70%'"),
        ({"accuracy": "nan"}, "faces", "accuracy: must be a share"),
        ({"accuracy": None}, "faces", "accuracy: must be a share, as 0.7 or '70%', not nothing"),
        ({"accuracy": "101%"}, "faces", "accuracy: must be from 0 to 1"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(asked, app, said):
    with pytest.raises(UsageError) as refused:
        needs_of(asked, app)
    assert said in str(refused.value)


@given(
    st.dictionaries(st.sampled_from(["app", "latency", "accuracy", "model", "variant", "x"]), st.text() | st.floats())
)
def test_whatever_comes_is_read_or_refused(asked):
    try:
        needs = needs_of(asked, "faces")
    except UsageError:
        return
    assert needs.app == "faces"
    assert needs.latency is None or needs.latency > 0
    assert 0 <= needs.accuracy <= 1
