"""What waits for a reign between what is read and what its core takes: bounded in bytes, whatever holds the rest up."""

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.agents.run import shard_input as reading
from spillway.agents.run.feed import Feed
from spillway.agents.run.shard_input import ShardInput
from spillway.lineage.ports import Record
from tests.unit.live.endless_inputs import endless

BOUND = 1_000


def raised(error):
    raise error


class Core:
    """Takes as many records as the test lets it."""

    def __init__(self):
        self.taken, self.more = [], 0

    def deliver(self, _now, record):
        self.taken.append(record.offset)
        self.more -= 1


class Log:
    """Nothing is read again of it."""

    async def read(self, _partition, _spans):
        for nothing in ():
            yield nothing


class Bench:
    """A member's input and its reign's feed, as they are put together; joins excuse all that is held."""

    def __init__(self, *, joins):
        self.core, self.sizes = Core(), []
        observed = SimpleNamespace(observe=lambda _took: None, hear=lambda _now, _took: None)
        metrics = SimpleNamespace(committed={}, intake=observed, transfer=observed)
        intake = SimpleNamespace(delivery=_same, part=_same, remembered=lambda _record: None)
        self.input = ShardInput(intake, Log(), metrics, endless(), feed=self._feed, crashed=raised, joins=joins)
        self.feed = Feed(
            self.core,
            intake,
            clock=SimpleNamespace(now=lambda: 0.0),
            metrics=metrics,
            reload_schemas=bool,
            may_take=lambda: self.core.more > 0,
            delivered=lambda: self.input.excuse(1_000_000),
            crashed=raised,
        )
        self.input.fed = lambda: self.feed.waiting

    def _feed(self, records):
        self.feed.add(records)

    @property
    def waiting(self):
        return sum(self.sizes[len(self.core.taken) : self.input._tail.next(0)])

    async def read_all(self, chunks):
        await self.input.assigned(frozenset([0]))
        await self.input.started()
        self.input.excuse(1_000_000)
        for sizes in chunks:
            begin = len(self.sizes)
            self.sizes += sizes
            records = [Record("p.learn", 0, begin + at, 0, 1, None, bytes(size), ()) for at, size in enumerate(sizes)]
            await self.input.accept({0: records})


def _same(record):
    return record


async def turns():
    for _ in range(10):
        await asyncio.sleep(0)


@settings(max_examples=2 * settings.default.max_examples)
@given(
    chunks=st.lists(st.lists(st.integers(0, 400), min_size=1, max_size=6), min_size=1, max_size=20),
    takes=st.lists(st.integers(1, 12), max_size=10),
    joins=st.booleans(),
)
def test_what_a_reign_has_still_to_take_is_bounded_in_bytes(chunks, takes, joins):
    most = BOUND + max(map(sum, chunks))

    async def told():
        bench = Bench(joins=joins)
        reading_all = asyncio.create_task(bench.read_all(chunks))
        for take in [*takes, *(sum(map(len, chunks)) for _ in chunks)]:
            await turns()
            assert bench.waiting <= most
            bench.core.more = take
            bench.feed.go_on()
        await asyncio.wait_for(reading_all, 10)
        await turns()
        return bench.core.taken

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "FED_BYTES", BOUND, raising=False)
        assert asyncio.run(told()) == list(range(sum(map(len, chunks))))  # and nothing waits for ever
