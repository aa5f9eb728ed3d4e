"""The Kafka that a served pipeline brings along."""

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

from spillway.agents.broker import EmbeddedCluster
from spillway.agents.broker.ports import free_port, kafka_answers
from spillway.agents.cli.options import cache_dir
from spillway.agents.supervise.kept_broker import kept_broker
from spillway.agents.supervise.ownership import TakenOverError
from spillway.lineage.errors import BrokerError
from tests.waiting import Bound, gone, until


def crash(pid):
    os.kill(pid, signal.SIGKILL)
    until(lambda: gone(pid), 20.0)


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
        assert said[1:] == ["Kafka's node 2 died; restarting it"]
        until(lambda: all(map(kafka_answers, ports)), 60, "all nodes answer")
        kept.keep(11.0)
        assert len(said) == 2
    assert not any(map(kafka_answers, ports))


@pytest.mark.nightly
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


@pytest.mark.nightly
@pytest.mark.parametrize("count", [1, 3])
def test_who_is_taken_over_leaves_it_to_its_successor(tmp_path, count):
    EmbeddedCluster(tmp_path / "data", nodes=count, port=free_port(), cache_dir=cache_dir()).start().stop()
    said = []
    with ExitStack() as first:
        kept = first.enter_context(kept_broker(tmp_path / "data", cache_dir=cache_dir(), say=said.append))
        ports = [int(address.rpartition(":")[2]) for address in kept.bootstrap.split(",")]
        with kept_broker(tmp_path / "data", cache_dir=cache_dir(), say=said.append) as successor:
            successor.keep(0.0)
            assert not successor.nodes
            with pytest.raises(TakenOverError), first.pop_all():
                raise TakenOverError
            assert all(map(kafka_answers, ports))
            successor.keep(10.0)
            crash(successor.nodes[0].pid)
            successor.keep(20.0)
            until(lambda: all(map(kafka_answers, ports)), 60, "all nodes answer")
        assert not any(map(kafka_answers, ports))


@pytest.mark.nightly
def test_what_is_left_goes_on_when_its_process_has_ended(tmp_path):
    code = (
        "import sys; from pathlib import Path; from spillway.agents.broker import EmbeddedCluster\n"
        f"made = EmbeddedCluster(sys.argv[1], cache_dir={str(cache_dir())!r}).start()\n"
        "print(made.nodes[0].port); made.leave()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "data")], capture_output=True, text=True, timeout=120, check=True
    )
    port = int(ended.stdout)
    with kept_broker(tmp_path / "data", say=lambda _text: None):
        held = Bound(3.0)
        while not held.over:
            assert kafka_answers(port)
            time.sleep(0.1)
    assert not kafka_answers(port)
