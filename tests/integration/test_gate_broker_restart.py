"""The broker restarts under a gate at work: the gate goes on, or is started anew, and nothing is lost or doubled."""

import pytest

from agents.broker import EmbeddedBroker

from .gate_bench import GateBench, ids, until
from .test_gate_crash import Stream


@pytest.mark.parametrize("seed", [1, 2])
def test_the_gate_goes_on_when_the_broker_is_back(tmp_path, unique_name, seed):
    with EmbeddedBroker(tmp_path / "kafka") as broker:
        bench = GateBench(broker.bootstrap, unique_name, tmp_path, '  - {name: a, model: "m:M"}')
        try:
            stream = Stream(bench, seed)
            gate = bench.gate()
            stream.go_on(100)
            bench.await_released(100)
            for _ in range(seed * 5):
                stream.go_on(10)
            broker.stop()
            broker.start()
            stream.go_on(100)

            def all_are_out():
                assert gate.poll() is None, gate.stderr.read()
                return len(set(ids(bench.released()))) >= stream.sent

            until(all_are_out, 90)
            stream.assert_one_outcome_each()
            bench.stop(gate)
        finally:
            bench.close()
