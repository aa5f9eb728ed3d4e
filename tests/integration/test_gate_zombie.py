"""A gate that is held up between its decision and its transaction, while another one takes its place."""

import threading
from contextlib import contextmanager

import pytest

from spillway.agents.live.gate.blocking import complete
from spillway.agents.live.gate.metrics import GateMetrics
from spillway.agents.live.gate.process import GateProcessConfig, build, pulled_input
from spillway.agents.live.gate.transaction import TransactionalWriter
from spillway.lineage.errors import AbortedError, BrokerError, FencedError, OustedError
from tests.waiting import until

from .gate_bench import PARTITIONS, ids

TWO_SINKS = '  - {name: a, model: "m:M"}\n  - {name: b, model: "m:M", after: a}\n  - {name: c, model: "m:M", after: a}'
HURRY = {"session.timeout.ms": 2_000, "max.poll.interval.ms": 2_500, "heartbeat.interval.ms": 200}


class HeldWriter(TransactionalWriter):
    """Waits in front of its next transaction with releases in it, once `hold` is set, until it is let go."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.hold = threading.Event()
        self.held = threading.Event()
        self.go = threading.Event()
        self.turn = None
        self.end = None  # what became of the transaction that was held up

    def write(self, turn, group, within):
        if not self.hold.is_set() or self.held.is_set() or not turn.records:
            super().write(turn, group, within)
            return
        self.turn = turn
        self.held.set()
        assert self.go.wait(600)
        try:
            super().write(turn, group, within)
        except BrokerError as error:
            self.end = error
            raise


@contextmanager
def running(bench, replica):
    """A gate in a thread of its own; gives its writer."""
    writer = HeldWriter(
        {**bench.settings.confluent(), "log_level": 0}, f"{bench.name}.gate.{replica}", max_message_bytes=1_000_000
    )
    config = GateProcessConfig(pipeline=bench.pipeline, settings=bench.settings, run_dir=bench.folder, replica=replica)
    pulled = pulled_input(config)
    pulled._settings |= HURRY
    gate = build(config, pulled, writer, GateMetrics(bench.name, replica))
    stopping = threading.Event()

    def work():
        try:
            complete(gate.start())
            complete(gate.run(stopping.is_set))
        except (FencedError, OustedError) as error:
            writer.end = error

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield writer
    finally:
        writer.go.set()
        stopping.set()
        thread.join()
        writer.close()
        complete(pulled.close(leave=False))


def both(bench, request_id, partition, sequence):
    for stage in ("b", "c"):
        bench.report(request_id, partition, sequence, stage=stage)


@pytest.fixture
def bench(make_gate):
    """Each partition begins with a query that is never heard of to the end, so that no commit can pass it."""
    bench = make_gate(TWO_SINKS, "sinks: all")
    for partition in range(PARTITIONS):
        bench.report(f"half-{partition}", partition, 0, stage="b")
        both(bench, f"first-{partition}", partition, 1)
    bench.producer.flush()
    return bench


@pytest.mark.parametrize(
    "replica", [0, pytest.param(1, marks=pytest.mark.nightly)], ids=["the same replica", "another replica"]
)
def test_what_it_decided_before_is_not_written_after_its_successor_wrote_it(bench, replica):
    with running(bench, 0) as zombie:
        bench.await_released(PARTITIONS)
        zombie.hold.set()
        for partition in range(PARTITIONS):
            both(bench, f"second-{partition}", partition, 2)
        bench.producer.flush()
        assert zombie.held.wait(600)
        assert zombie.turn.positions  # if not for progress, then for fencing
        with running(bench, replica):
            bench.await_released(2 * PARTITIONS)
            zombie.go.set()
            until(lambda: zombie.end is not None, 120)
            assert isinstance(zombie.end, FencedError if replica == 0 else FencedError | AbortedError)
            for partition in range(PARTITIONS):
                both(bench, f"third-{partition}", partition, 3)
            bench.producer.flush()
            released = bench.await_released(3 * PARTITIONS)
            wanted = [f"{name}-{partition}" for name in ("first", "second", "third") for partition in range(PARTITIONS)]
            assert sorted(ids(released)) == sorted(wanted)
