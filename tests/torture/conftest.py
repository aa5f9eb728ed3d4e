"""One broker for many runs, and a table of what they have shown."""

import os
from pathlib import Path

import pytest

from spillway.agents.broker import EmbeddedCluster
from spillway.agents.cli.options import cache_dir
from tests.nodes import ClusterBench
from tests.slow_broker import slow_broker
from tests.torture.table import lines, read
from tests.waiting import BROKER_SECONDS

RESULTS = Path(os.environ.get("TORTURE_RESULTS", "build/torture.jsonl"))


@pytest.fixture(scope="session")
def slow_bench(tmp_path_factory):
    """A broker that looks for something to compact ten times a second."""
    settings = {"log_cleaner_backoff_ms": "100", "log_retention_check_interval_ms": "1000"}
    with slow_broker(tmp_path_factory.mktemp("torture"), cache_dir(), **settings) as bench:
        yield bench


@pytest.fixture(scope="session")
def three_nodes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nodes")
    with EmbeddedCluster(folder, nodes=3, cache_dir=cache_dir(), start_timeout=BROKER_SECONDS) as cluster:
        yield ClusterBench(cluster)


def pytest_terminal_summary(terminalreporter):
    """Say by row how many runs there were, how many went wrong, and what they cost."""
    if not RESULTS.exists():
        return
    terminalreporter.section(f"torture: {RESULTS}")
    for line in lines(read(RESULTS)):
        terminalreporter.line(line)
