"""Which Kafka a command takes: what it is told, else where the pipeline is served, else the local one."""

import os
import socket
import time
from pathlib import Path

import psutil
import pytest

from spillway.agents.broker.folder import DataFolder, RunningBroker
from spillway.agents.cli.cluster import find_cluster
from spillway.agents.supervise.registry import ServeEntry
from spillway.lineage.errors import BrokerError, UsageError
from spillway.producers.cluster import require_listening


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("spillway.agents.cli.cluster.require_listening", lambda _bootstrap: None)


def served(run_dir, **changes):
    entry = {"pid": os.getpid(), "started_unix": time.time(), **changes}
    ServeEntry("p", "p.yaml", "served:1", None, **entry).write(run_dir)


def local_broker():
    folder = DataFolder(Path(".spillway/broker"))
    folder.prepare()
    folder.note(RunningBroker(os.getpid(), psutil.Process().create_time(), 9))


def test_what_is_told_comes_first(tmp_path):
    served(tmp_path)
    assert find_cluster("told:1", None, run_dir=tmp_path, pipeline="p").bootstrap == "told:1"


def test_then_where_the_pipeline_is_served_then_the_local_broker(tmp_path):
    local_broker()
    served(tmp_path)
    assert find_cluster(None, None, run_dir=tmp_path, pipeline="p").bootstrap == "served:1"
    assert find_cluster(None, None, run_dir=tmp_path, pipeline="q").bootstrap == "127.0.0.1:9"
    served(tmp_path, pid=2**22 - 1)
    assert find_cluster(None, None, run_dir=tmp_path, pipeline="p").bootstrap == "127.0.0.1:9"


def test_a_local_broker_that_was_stopped_is_to_be_started(tmp_path):
    DataFolder(Path(".spillway/broker")).prepare()
    with pytest.raises(UsageError, match=r"this folder's Kafka .* is stopped: start it by 'spillway broker start'"):
        find_cluster(None, None, run_dir=tmp_path, pipeline="p")


def test_else_it_says_what_to_do(tmp_path):
    with pytest.raises(UsageError, match=r"--bootstrap HOST:PORT or set SPILLWAY_BOOTSTRAP"):
        find_cluster(None, None, run_dir=tmp_path, pipeline="p")


def test_a_cluster_at_whose_address_nothing_listens_is_refused_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "spillway.agents.cli.cluster.require_listening", lambda bootstrap: require_listening(bootstrap, 0.0)
    )
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(
            BrokerError, match=f"cannot reach Kafka at {address}: nothing listens there; start a broker"
        ):
            find_cluster(address, None, run_dir=tmp_path, pipeline="p")


@pytest.mark.parametrize("noted", [False, True])
@pytest.mark.parametrize("named", [None, "127.0.0.1:9", "elsewhere:1"])
def test_a_local_kafka_that_is_being_started_is_told_so(tmp_path, monkeypatch, noted, named):
    """While it is claimed, whether its process is there yet or not; not where another one is named."""

    def refuse(bootstrap):
        raise BrokerError(f"nothing listens at {bootstrap}")

    monkeypatch.setattr("spillway.agents.cli.cluster.require_listening", refuse)
    folder = DataFolder(Path(".spillway/broker"))
    assert not folder.starting()
    with folder.claimed():
        if noted:
            local_broker()
        told = "is starting: try again" if named is None or (noted and named == "127.0.0.1:9") else "nothing listens"
        with pytest.raises(BrokerError, match=told):
            find_cluster(named, None, run_dir=tmp_path, pipeline="p")
    with pytest.raises((BrokerError, UsageError), match="nothing listens" if named or noted else "no Kafka broker"):
        find_cluster(named, None, run_dir=tmp_path, pipeline="p")
