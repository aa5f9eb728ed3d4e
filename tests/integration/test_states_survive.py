"""Ten of the runs of `make torture`, four in every test run: a fault each, held against the oracle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agents.cli.options import cache_dir
from tests.slow_broker import slow_broker
from tests.torture.suite import FEW

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.slow_broker import SlowBroker
    from tests.torture.suite import Case


@pytest.fixture(scope="module")
def slow_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlowBroker]:
    with slow_broker(tmp_path_factory.mktemp("few"), cache_dir()) as bench:
        yield bench


@pytest.mark.parametrize(
    "case", [*FEW[:4], *(pytest.param(case, marks=pytest.mark.nightly) for case in FEW[4:])], ids=str
)
def test_nothing_released_rests_on_what_is_lost(
    slow_bench: SlowBroker, unique_name: str, tmp_path: Path, case: Case
) -> None:
    verdict = case.run(slow_bench, unique_name, tmp_path)
    assert not verdict.problems, "\n".join([str(case), *verdict.problems])
