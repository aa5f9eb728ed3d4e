import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import metrics_core

from spillway.agents.run.intake import MAX_BUDGET_US, SKEW_US, Times, effective
from spillway.lineage import metric_names, reasons
from spillway.lineage.errors import UsageError
from spillway.lineage.keys import partition_for
from spillway.lineage.limits import Limits


def constants(module):
    return {name: value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)}


def test_metric_names_are_prometheus_names_and_distinct():
    names = [value for value in constants(metric_names).values() if value.startswith("spillway_")]
    assert len(names) == len(set(names)) > 20
    for name in names:
        metrics_core.Metric(name, "", "gauge")


def test_reasons_are_short_distinct_labels():
    codes = list(constants(reasons).values())
    assert len(codes) == len(set(codes))
    assert all(code.replace("-", "").isalpha() and code.islower() and len(code) <= 24 for code in codes)


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Limits)])
def test_a_limit_must_be_positive(field):
    with pytest.raises(UsageError, match=field):
        Limits(**{field: 0})


@pytest.mark.parametrize("limit", [{"max_rank": 65}, {"max_depth": 101}])
def test_a_limit_that_the_decoders_cannot_keep_is_refused(limit):
    with pytest.raises(UsageError):
        Limits(**limit)


# From org.apache.kafka.common.utils.UtilsTest.
VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", VECTORS)
def test_the_partition_is_javas(key):
    assert partition_for(key, 12) == (VECTORS[key] & 0x7FFFFFFF) % 12


@given(st.binary(max_size=40), st.integers(1, 1_000))
def test_a_partition_is_one_of_the_topics(key, partitions):
    assert 0 <= partition_for(key, partitions) < partitions
    assert partition_for(key, 1) == 0


def test_a_topic_without_partitions_has_none():
    with pytest.raises(ValueError, match="at least one"):
        partition_for(b"k", 0)


NOW = 1_700_000_000_000_000
SLO = 400_000
times = st.integers(0, 2**63 - 1)


@pytest.mark.parametrize(
    ("sent", "deadline", "appended", "slo", "found"),
    [
        (NOW, NOW + SLO, NOW + 5_000, SLO, Times(NOW, NOW + SLO)),
        (5, 5 + SLO, 0, SLO, Times(5, 5 + SLO)),  # when it was appended is not known
        (5, 5 + SLO, -1, SLO, Times(5, 5 + SLO)),
        (NOW, NOW - 7, NOW, SLO, Times(NOW, NOW)),  # before the sending: due at once
        (NOW, 2**63 - 1, NOW, SLO, Times(NOW, NOW + MAX_BUDGET_US)),  # in the far future
        (NOW, NOW + 5 * MAX_BUDGET_US, NOW, MAX_BUDGET_US, Times(NOW, NOW + 5 * MAX_BUDGET_US)),
    ],
)
def test_a_sender_is_believed_as_far_as_it_is_plausible(sent, deadline, appended, slo, found):
    assert effective(sent, deadline, appended, slo) == found


@pytest.mark.parametrize("skew", [-SKEW_US, SKEW_US])
def test_a_second_of_skew_is_allowed_and_not_more(skew):
    assert not effective(NOW + skew, NOW + skew + SLO, NOW, SLO).skewed
    further = skew + (1 if skew > 0 else -1)
    assert effective(NOW + further, NOW + further + SLO, NOW, SLO) == Times(NOW, NOW + SLO, skewed=True)


@given(times, times, st.integers(-1, 2**62), st.integers(1, 10**10))
def test_the_result_is_always_plausible(sent, deadline, appended, slo):
    result = effective(sent, deadline, appended, slo)
    assert 0 <= result.deadline_us - result.sent_us <= max(MAX_BUDGET_US, 10 * slo)
    if appended > 0:
        assert abs(result.sent_us - appended) <= SKEW_US
    if 0 <= deadline - sent <= SLO:
        assert result.deadline_us - result.sent_us == deadline - sent


@given(times, times, st.integers(1, 2**62), st.integers(1, 10**10))
def test_times_that_were_mended_once_stay(sent, deadline, appended, slo):
    once = effective(sent, deadline, appended, slo)
    assert effective(once.sent_us, once.deadline_us, appended, slo) == Times(once.sent_us, once.deadline_us)
