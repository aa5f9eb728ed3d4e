"""What `Transactions` promises, in memory and on Kafka."""

import pytest

from spillway.lineage.errors import AbortedError, FencedError
from spillway.lineage.ports import Commit, Outgoing


async def stored(world, topic, count):
    """Return what readers of committed records see, once it is so many: they may see a transaction after its writer."""
    came = []
    log = await world.log()
    log.follow((topic, 0), 0, came.extend)
    await world.until(lambda: len(came) >= count, f"{count} records of {topic}")
    await log.close()
    return came


async def test_records_and_offsets_are_written_together(world, unique_name):
    await world.create(unique_name, 1)
    writer = await world.transactions(f"{unique_name}.id", unique_name, unique_name)
    await writer.open()
    records = [Outgoing(unique_name, 0, b"k", b"%d" % number, (("h", b"x"),)) for number in range(2)]
    written = await writer.write(records, {0: Commit(1, "a note")})
    came = await stored(world, unique_name, 2)
    assert [(r.key, r.value, r.headers) for r in came] == [(r.key, r.value, r.headers) for r in records]
    assert [r.offset for r in came] == [offset for offset, _ in written]
    assert all(appended > 0 for _, appended in written)
    assert await world.position(unique_name, unique_name, 0) == Commit(1, "a note")


async def test_a_later_holder_of_an_id_fences_the_one_before(world, unique_name):
    await world.create(unique_name, 1)
    old, new = [await world.transactions(f"{unique_name}.id", unique_name, unique_name) for _ in range(2)]
    await old.open()
    await old.write([Outgoing(unique_name, 0, b"k", b"before")], {})
    await new.open()
    with pytest.raises(FencedError):
        await old.write([Outgoing(unique_name, 0, b"k", b"late")], {})
    await new.write([Outgoing(unique_name, 0, b"k", b"after")], {})
    assert [record.value for record in await stored(world, unique_name, 2)] == [b"before", b"after"]


async def test_offsets_of_a_member_that_was_replaced_are_refused_with_the_records(world, unique_name):
    await world.create(unique_name, 1)
    old = await world.transactions(f"{unique_name}.old", unique_name, unique_name)
    new = await world.transactions(f"{unique_name}.new", unique_name, unique_name)
    await old.open()
    await new.open()
    await new.write([Outgoing(unique_name, 0, b"k", b"new")], {0: Commit(2, "new")})
    with pytest.raises(AbortedError):
        await old.write([Outgoing(unique_name, 0, b"k", b"old")], {0: Commit(1, "old")})
    assert [record.value for record in await stored(world, unique_name, 1)] == [b"new"]
    assert await world.position(unique_name, unique_name, 0) == Commit(2, "new")
    await old.write([Outgoing(unique_name, 0, b"k", b"without offsets")], {})
    assert [record.value for record in await stored(world, unique_name, 2)] == [b"new", b"without offsets"]
