"""The supervisor's look at consumer groups outlives the broker: an admin request that times out ends no process."""

import subprocess
import sys
import time

import pytest

from spillway.agents.broker import EmbeddedBroker
from spillway.agents.cli.options import cache_dir
from tests.waiting import BROKER_SECONDS

from .conftest import make_topics

LOOKER = """
import sys, time
from spillway.agents.supervise.groups import KafkaGroups, Watched
from spillway.lineage.errors import BrokerError
from spillway.producers.connection import ClientSettings
watched = {f"g{number}": Watched("t", (0, 1, 2), only=None if number < 2 else number) for number in range(5)}
groups = KafkaGroups(ClientSettings(bootstrap=sys.argv[1]), "p", watched)
while True:
    try:
        groups.look(sorted(watched))
        print("seen", flush=True)
    except BrokerError:
        print("away", flush=True)
    time.sleep(0.2)
"""
AWAY_SECONDS = 7.0  # longer than a request is waited for


@pytest.mark.nightly
def test_looking_goes_on_after_an_outage(tmp_path):
    with EmbeddedBroker(tmp_path / "kafka", cache_dir=cache_dir(), start_timeout=BROKER_SECONDS) as broker:
        make_topics(broker.bootstrap, {"t": 3})
        command = [sys.executable, "-c", LOOKER, broker.bootstrap]
        lookers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
        try:
            for looker in lookers:
                assert "seen\n" in iter(looker.stdout.readline, "")
            broker.kill()
            time.sleep(AWAY_SECONDS)  # the outage itself
            broker.start()
            for looker in lookers:
                assert "away\n" in iter(looker.stdout.readline, "")
                assert "seen\n" in iter(looker.stdout.readline, "")
            time.sleep(AWAY_SECONDS)  # late answers come within this
            assert [looker.poll() for looker in lookers] == [None] * len(lookers)
        finally:
            for looker in lookers:
                looker.kill()
                looker.wait()
