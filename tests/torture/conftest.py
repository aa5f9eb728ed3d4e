"""One broker for many runs, and a table of what they have shown."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agents.broker import EmbeddedCluster
from agents.cli.options import cache_dir
from tests.nodes import ClusterBench
from tests.slow_broker import slow_broker
from tests.torture.table import lines, read
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
    terminalreporter.section(f"torture: {RESULTS}")
    for line in lines(read(RESULTS)):
        terminalreporter.line(line)
