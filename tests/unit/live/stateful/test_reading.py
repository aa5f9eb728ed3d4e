"""What a member reads of its input when there is more than it has room for."""

import asyncio
import tracemalloc
from types import SimpleNamespace

import pytest

from spillway.agents.core import input_tail
from spillway.agents.run import shard_input as reading
from spillway.agents.run.shard_input import ShardInput
from spillway.checkpoint.notes import Note
from spillway.lineage.headers import Headers, encode
from spillway.lineage.hops import Hop
from spillway.lineage.ports import Bounds, Record
from spillway.lineage.replication import InputPlace
from spillway.producers.kafka.records import record_of
from tests.unit.live.endless_inputs import endless

MOST = 4


def record(offset: int) -> Record:
    return Record("p.learn", 0, offset, offset, 1, None, b"x", ())


def place(position: int, *spans: tuple[int, int]) -> InputPlace:
    return InputPlace(0, position, Note(spans).encode(position))


class Log:
    """The input as it can be read again; notes what was."""

    def __init__(self):
        self.asked = []

    async def read(self, _partition, spans):
        self.asked += spans
        for start, end in spans:
            for offset in range(start, end):
                yield SimpleNamespace(offset=offset)


class Bench:
    def __init__(self, *, joins=False):
        self.fed, self.log = [], Log()
        intake = SimpleNamespace(remembered=lambda record: SimpleNamespace(offset=record.offset))
        metrics = SimpleNamespace(committed={})
        self.input = ShardInput(
            *(intake, self.log, metrics, endless()),
            feed=self._feed, crashed=pytest.fail, joins=joins, tail=_small,
        )  # fmt: skip

    def _feed(self, records):
        self.fed += [record.offset for record in records]

    async def assigned(self) -> dict[int, int]:
        starts = await self.input.assigned(frozenset([0]))
        await self.input.started()
        return starts

    def reads(self, *offsets: int) -> asyncio.Task[None]:
        return asyncio.create_task(self.input.accept({0: [record(offset) for offset in offsets]}))

    def remembered(self, position: int, *spans: tuple[int, int]) -> list[int]:
        return [delivery.offset for delivery in self.input._remembered(0, position, spans)]


def _small(**given):
    most_values = 2 if given["most_values"] else None
    return input_tail.InputTail(strip=reading._stripped, most_records=MOST, **{**given, "most_values": most_values})


async def begun(**options):
    bench = Bench(**options)
    await bench.assigned()
    return bench


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_what_a_base_remembers_beyond_what_was_read_is_read_again():
    bench = await begun()
    await bench.reads(*range(4))  # it is full, and knows of no version
    await bench.input.complete([place(900, (2, 4), (600, 603))])
    assert (bench.log.asked, bench.remembered(900, (2, 4), (600, 603))) == ([(600, 603)], [2, 3, 600, 601, 602])


async def test_what_is_read_meanwhile_is_remembered_once():
    bench = await begun()
    await bench.reads(0, 1)
    await bench.input.complete([place(5, (0, 5))])
    await bench.reads(2, 3)
    assert bench.remembered(5, (0, 5)) == [0, 1, 2, 3, 4]


async def test_a_position_beyond_what_was_read_does_not_end_its_memory():
    bench = await begun()
    await bench.reads(0)
    bench.input.durable([place(4, (1, 3))])
    await bench.reads(*range(1, 6))
    assert bench.remembered(4, (1, 3)) == [1, 2]
    assert (await bench.input.assigned(frozenset([0])), bench.fed) == ({0: 6}, [0, 1, 2, 3, 4, 5])


async def test_who_stops_gives_a_new_reign_nothing_more():
    bench = await begun()
    await bench.reads(0, 1)
    before = len(bench.input._since({0: 0}))
    bench.input.stop_taking()
    assert (before, bench.input._since({0: 0})) == (2, [])


async def test_what_a_join_holds_back_does_not_stop_reading():
    bench = await begun()
    await bench.reads(*range(4))
    more = bench.reads(4, 5)
    await turns()
    assert bench.input.waits
    bench.input.excuse(3)
    await more
    bench.input.excuse(0)  # the reign is over
    last = bench.reads(6)
    await turns()
    assert bench.input.waits
    bench.input.durable([place(6)])
    await last
    assert bench.fed == list(range(7))


@pytest.mark.parametrize(("joins", "stripped"), [(True, [False, False, True, True]), (False, [False] * 4)])
async def test_a_join_keeps_values_up_to_a_bound_alone(joins, stripped):
    bench = await begun(joins=joins)
    await bench.reads(*range(4))
    since = bench.input._since({0: 0})
    assert [each.stripped for each in since] == stripped
    assert [bench.input.at(0, each.offset) is None for each in since] == stripped


class Message:
    """As confluent-kafka gives one: all that it is asked for is made anew."""

    def __init__(self, offset):
        self.offset = lambda: offset

    def topic(self):
        return "p.learn"

    def partition(self):
        return 0

    def timestamp(self):
        return 1, 1_700_000_000_000 + self.offset()

    def key(self):
        return b"%d" % (1_000_000 + self.offset())

    def headers(self):
        request_id, now = f"request-{self.offset()}", 1_700_000_000_000_000
        said = encode(
            Headers(request_id, now, now + 400_000, Hop("answer", 1, 0, self.offset(), 1), {"ask": ("answer",)})
        )
        said.append(("traceparent", b"00-%032d-%016d-01" % (self.offset(), self.offset())))
        return [(key.encode().decode(), value[:1] + value[1:]) for key, value in said]


def test_a_record_without_its_value_takes_no_more_than_is_reckoned():
    many = 2_000
    record_of(Message(0), value=False)
    tracemalloc.start()
    try:
        records = [record_of(Message(offset), value=False) for offset in range(many)]
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(records) == many
    assert taken / many < input_tail.RECORD_BYTES


async def test_retention_may_take_what_is_durable_and_was_not_read_here():
    """Another member reads faster: this one goes on where the log begins."""
    bench = await begun()
    await bench.reads(0, 1)
    bench.input.durable([place(900)])
    bench.input.inputs.bounds = of_bounds(Bounds(500, 2_000))
    assert await bench.assigned() == {0: 500}
    bench.input.inputs.bounds = of_bounds(Bounds(901, 2_000))
    assert (await bench.assigned(), bench.input.inputs.stopped) == ({}, {0: 900})


def of_bounds(bounds):
    async def told(partitions):
        return dict.fromkeys(partitions, bounds)

    return told
