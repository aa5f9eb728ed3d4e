"""The Kafka that a served pipeline brings along."""

from __future__ import annotations

import os
import signal
import time

import psutil
import pytest

from agents.broker import EmbeddedCluster
from agents.broker.ports import free_port, kafka_answers
from agents.cli.options import cache_dir
from agents.supervise.kept_broker import kept_broker
from lineage.errors import BrokerError
from tests.waiting import Bound, until


def crash(pid):
    os.kill(pid, signal.SIGKILL)
    bound = Bound(20.0)
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert not bound.over
        time.sleep(0.02)


@pytest.mark.nightly
def test_of_a_cluster_each_node_is_kept_and_the_others_serve_meanwhile(tmp_path):
    EmbeddedCluster(tmp_path / "data", nodes=3, cache_dir=cache_dir()).start().stop()
    said = []
    with kept_broker(tmp_path / "data", cache_dir=cache_dir(), say=said.append) as kept:
        ports = [int(address.rpartition(":")[2]) for address in kept.bootstrap.split(",")]
        assert len(ports) == 3
        kept.keep(0.0)
        crash(kept.nodes[1].pid)
        kept.keep(10.0)
        assert said[1:] == ["Kafka's node 2 died; it is started again"]
        until(lambda: all(map(kafka_answers, ports)), 60, "all nodes answer")
        kept.keep(11.0)
        assert len(said) == 2
    assert not any(map(kafka_answers, ports))


def test_it_comes_back_at_its_address_until_it_dies_too_often(tmp_path):
    said = []
    with kept_broker(tmp_path / "data", port=free_port(), cache_dir=cache_dir(), say=said.append) as kept:
        port = int(kept.bootstrap.rpartition(":")[2])
        kept.keep(0.0)
        assert len(said) == 1
        for now in (10.0, 20.0):
            crash(kept.nodes[0].pid)
            assert not kafka_answers(port)
            kept.keep(now)
            assert kafka_answers(port)
        assert "Kafka died" in said[1]
        with kept_broker(tmp_path / "data", say=said.append) as other:  # somebody else's, then: left alone
            assert other.bootstrap == kept.bootstrap
        assert kafka_answers(port)
        crash(kept.nodes[0].pid)
        with pytest.raises(BrokerError, match=r"died 3 times(.|\n)*kafka.log"):
            kept.keep(30.0)
    assert not kafka_answers(port)
