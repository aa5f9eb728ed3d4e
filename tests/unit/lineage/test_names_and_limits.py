import dataclasses

import pytest
from prometheus_client import metrics_core

from lineage import metric_names, reasons
from lineage.errors import UsageError
from lineage.limits import Limits


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
