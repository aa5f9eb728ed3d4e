"""Partitions that come to a stage: what it owns goes on while logs are read for them, and what came is set aside."""

import asyncio

import pytest

from spillway import Pipeline
from spillway.lineage import metric_names as names
from spillway.lineage.keys import partition_for

PIPELINE = "name: p\nslo: 300s\npartitions: 4\nstages:\n  - {name: a, emulated: {alpha: 1ms}, workers: {fronts: 2}}\n"


class TwoFronts:
    """A stage of two processes, of which the first one reads no version logs before it is told to."""

    def __init__(self, pipeline):
        self.pipeline, self.free = pipeline, asyncio.Event()
        self.begin()
        pipeline.sleep(5.0)
        self.stage = pipeline._service._serving["a", 0].stage
        self.kept = set(self.stage._positions)
        self.stage._context.read_logs = self.free.wait

    def begin(self):
        service = self.pipeline._service
        process = self.other = service.world.process("a.1")

        async def serve():
            await service._front("a", process, 1).serve()

        process.start(serve())

    def lose_the_other(self):
        """Return queries that come once all partitions are the first one's, by the partition of each."""
        self.other.kill()
        self.pipeline.sleep(15.0)
        sent = [self.pipeline.submit({"x": x}) for x in range(40)]
        self.pipeline.sleep(5.0)
        return [(partition_for(pending.query.key, 4), pending) for pending in sent]

    @property
    def received(self):
        return self.pipeline.metrics("a")[names.RECEIVED_TOTAL]


@pytest.fixture
def fronts(served):
    return TwoFronts(served(Pipeline.parse(PIPELINE)))


def test_what_is_owned_goes_on_while_another_partition_is_taken_over(fronts):
    sent = fronts.lose_the_other()
    assert len(fronts.kept) == 2
    assert all((pending.outcome is not None) == (partition in fronts.kept) for partition, pending in sent)
    assert fronts.stage.idle
    fronts.free.set()
    assert [pending.result().outputs["x"] for _, pending in sent] == list(range(40))


def test_what_was_set_aside_goes_with_its_partition(fronts):
    sent = fronts.lose_the_other()
    received = fronts.received
    fronts.begin()
    assert [pending.result().outputs["x"] for _, pending in sent] == list(range(40))
    fronts.free.set()
    fronts.pipeline.sleep(5.0)
    assert fronts.received == received == sum(partition in fronts.kept for partition, _ in sent)
    assert len(fronts.pipeline.records("outcomes")) == len(sent)


def test_what_was_set_aside_is_left_when_the_stage_stops(fronts):
    fronts.lose_the_other()
    received = fronts.received
    fronts.stage.stop_taking()
    fronts.free.set()
    fronts.pipeline.sleep(5.0)
    assert fronts.received == received
    assert fronts.stage.idle
