"""Ten of the runs of `make torture`: a fault each, held against the oracle."""

import pytest

from spillway.agents.cli.options import cache_dir
from tests.slow_broker import slow_broker
from tests.torture.suite import FEW


@pytest.fixture(scope="module")
def slow_bench(tmp_path_factory):
    with slow_broker(tmp_path_factory.mktemp("few"), cache_dir()) as bench:
        yield bench


@pytest.mark.nightly
@pytest.mark.parametrize("case", FEW, ids=str)
def test_nothing_released_rests_on_what_is_lost(slow_bench, unique_name, tmp_path, case):
    verdict = case.run(slow_bench, unique_name, tmp_path)
    assert not verdict.problems, "\n".join([str(case), *verdict.problems])
