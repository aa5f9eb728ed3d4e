"""The only broker loses its controller for a while: no leader, no coordinator, and no connection that breaks."""

import time

import pytest

from tests.fenced_broker import fenced_broker
from tests.waiting import until

from .gate_bench import PARTITIONS, GateBench, ids

pytestmark = pytest.mark.nightly

AWAY = 12.0  # longer than the group's session, and the gate's transaction


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


class Reports:
    """What a stage reports that commits nothing, and after an outage repeats it all."""

    def __init__(self, bench):
        self._bench = bench
        self.sent = 0

    def send(self, count):
        for _ in range(count):
            self._report(self.sent)
            self.sent += 1

    def repeat(self):
        self._bench.connect()
        for number in range(self.sent):
            self._report(number)

    def _report(self, number):
        self._bench.report(f"r{number}", number % PARTITIONS, number // PARTITIONS)


@pytest.mark.parametrize("busy", [True, False], ids=["busy", "idle"])
def test_the_gate_goes_on_when_the_broker_leads_again(tmp_path, unique_name, busy):
    with fenced_broker(tmp_path / "kafka") as broker:
        bench = GateBench(broker.bootstrap, unique_name, tmp_path, '  - {name: a, model: "m:M"}')
        try:
            reports = Reports(bench)
            gate = Supervised(bench)
            reports.send(100)
            bench.await_released(100)
            broker.fence(meanwhile=lambda: busy and reports.send(1))
            time.sleep(AWAY)
            broker.unfence()
            reports.repeat()
            reports.send(100)
            until(lambda: gate.heed() or len(set(ids(bench.released()))) >= reports.sent, 180)
            assert sorted(ids(bench.released())) == sorted(f"r{number}" for number in range(reports.sent))
            bench.stop(gate.process)
        finally:
            bench.close()
