"""One broker for many runs, and a table of what they have shown."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import pytest

from agents.broker import EmbeddedCluster
from agents.cli.options import cache_dir
from tests.nodes import ClusterBench
from tests.slow_broker import slow_broker
from tests.waiting import BROKER_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.slow_broker import SlowBroker

RESULTS = Path(os.environ.get("TORTURE_RESULTS", "build/torture.jsonl"))


@pytest.fixture(scope="session")
def slow_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlowBroker]:
    """A broker that looks for something to compact ten times a second."""
    settings = {"log_cleaner_backoff_ms": "100", "log_retention_check_interval_ms": "1000"}
    with slow_broker(tmp_path_factory.mktemp("torture"), cache_dir(), **settings) as bench:
        yield bench


@pytest.fixture(scope="session")
def three_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterBench]:
    """A cluster of three."""
    folder = tmp_path_factory.mktemp("nodes")
    with EmbeddedCluster(folder, nodes=3, cache_dir=cache_dir(), start_timeout=BROKER_SECONDS) as cluster:
        yield ClusterBench(cluster)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say by row how many runs there were, how many went wrong, and what they cost."""
    if not RESULTS.exists():
        return
    rows = defaultdict(list)
    for line in RESULTS.read_text().splitlines():
        result = json.loads(line)
        rows[result["row"]].append(result)
    terminalreporter.section(f"torture: {RESULTS}")
    for row, results in rows.items():
        gaps = [result["longest_gap"] for result in results if not result["problems"]]
        wrong = sum(bool(result["problems"]) for result in results)
        told = f"{median(gaps):.2f} s ({min(gaps):.2f} to {max(gaps):.2f})" if gaps else "none"
        terminalreporter.line(f"{row:50} {len(results):3} runs, {wrong} wrong; longest gap {told}")
