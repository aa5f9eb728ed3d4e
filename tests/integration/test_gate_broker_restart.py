"""The broker restarts under a gate at work: the gate goes on, or is started anew, and nothing is lost or doubled."""

import time

import pytest

from agents.broker import EmbeddedBroker
from tests.waiting import BROKER_SECONDS, until

from .gate_bench import GateBench, ids
from .test_gate_crash import Stream

pytestmark = pytest.mark.nightly


class Supervised:
    """A gate that is started again when it ends, as a supervisor does. It may end in an error that it can name."""

    def __init__(self, bench):
        self._bench = bench
        self.process = bench.gate()

    def heed(self):
        if self.process.poll() is not None:
            said = self._bench.said(self.process)
            assert self.process.returncode == 1, said
            assert "Traceback" not in said
            print("the gate has ended and is started again:", said)  # seen where the test fails
            self.process = self._bench.gate()


@pytest.mark.parametrize(("seed", "away"), [(1, 0.0), (2, 12.0)])  # 12 s: longer than a session and a transaction
def test_the_gate_goes_on_when_the_broker_is_back(tmp_path, unique_name, seed, away):
    with EmbeddedBroker(tmp_path / "kafka", start_timeout=BROKER_SECONDS) as broker:
        bench = GateBench(broker.bootstrap, unique_name, tmp_path, '  - {name: a, model: "m:M"}')
        try:
            stream = Stream(bench, seed)
            gate = Supervised(bench)
            stream.go_on(100)
            bench.await_released(100)
            for _ in range(seed * 5):
                stream.go_on(10)
            broker.stop()
            time.sleep(away)
            broker.start()
            bench.connect()
            stream.go_on(100)
            until(lambda: gate.heed() or len(set(ids(bench.released()))) >= stream.sent, 180)
            stream.assert_one_outcome_each()
            bench.stop(gate.process)
        finally:
            bench.close()
