"""At least a hundred runs over a real broker, one fault each, each held against the oracle: `make torture`."""

import json
from dataclasses import asdict

import pytest

from tests.torture.conftest import RESULTS
from tests.torture.suite import CASES, FAULTS

pytestmark = pytest.mark.torture


@pytest.fixture(scope="session", autouse=True)
def _fresh_results():
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.unlink(missing_ok=True)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_nothing_released_rests_on_what_is_lost(request, unique_name, tmp_path, case):
    bench = request.getfixturevalue("slow_bench" if FAULTS[case.fault].nodes == 1 else "three_nodes")
    verdict = case.run(bench, unique_name, tmp_path)
    with RESULTS.open("a") as results:
        results.write(json.dumps({"case": str(case), "row": FAULTS[case.fault].row, **asdict(verdict)}) + "\n")
    assert not verdict.problems, "\n".join([str(case), *verdict.problems])
