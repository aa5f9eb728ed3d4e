"""What `Spans` promises, in memory and on Kafka."""

from spillway.lineage.ports import Bounds, Outgoing


async def read(spans, topic, stretches, **options):
    return [record async for records in spans.read(topic, stretches, **options) for record in records]


async def test_stretches_are_read_again_in_order_and_no_further(world, unique_name):
    await world.create(unique_name, 2)
    for partition in range(2):
        await world.write(unique_name, partition, *(b"%d" % number for number in range(10)))
    spans = await world.spans()
    assert await spans.bounds(unique_name, [0, 1]) == {0: Bounds(0, 10), 1: Bounds(0, 10)}
    came = await read(spans, unique_name, {0: Bounds(2, 7), 1: Bounds(4, 4)})
    assert [(one.partition, one.offset, one.value) for one in came] == [(0, n, b"%d" % n) for n in range(2, 7)]
    bare = await read(spans, unique_name, {0: Bounds(0, 3), 1: Bounds(8, 10)}, values=False)
    assert {(one.partition, one.offset, one.value) for one in bare} == {
        (0, 0, None), (0, 1, None), (0, 2, None), (1, 8, None), (1, 9, None)
    }  # fmt: skip
    await spans.close()


async def test_what_the_log_lost_is_left_out(world, unique_name):
    await world.create(unique_name, 1)
    await world.write(unique_name, 0, *(b"%d" % number for number in range(10)))
    await world.delete_before(unique_name, 0, 4)
    spans = await world.spans()
    assert (await spans.bounds(unique_name, [0]))[0] == Bounds(4, 10)
    assert [one.offset for one in await read(spans, unique_name, {0: Bounds(2, 6)})] == [4, 5]
    picked = await spans.pick(unique_name, [(0, 1), (0, 8), (0, 5)])
    assert {place: record.value for place, record in picked.items()} == {(0, 8): b"8", (0, 5): b"5"}
    await spans.close()


async def test_markers_of_transactions_are_passed_over(world, unique_name):
    await world.create(unique_name, 1)
    writer = await world.transactions(f"{unique_name}.id", unique_name, unique_name)
    await writer.open()
    for number in range(3):
        await writer.write([Outgoing(unique_name, 0, b"k", b"%d" % number)], {})
    spans = await world.spans()
    end = (await spans.bounds(unique_name, [0]))[0].end
    assert [one.value for one in await read(spans, unique_name, {0: Bounds(0, end)})] == [b"0", b"1", b"2"]
    await spans.close()
