"""What `Log` promises, in memory and on Kafka."""

from spillway.lineage.ports import Since
from tests.followed import caught_up


def values(records):
    return [record.value for record in records]


async def test_a_log_is_read_from_an_offset_to_its_end_and_then_followed(world, unique_name):
    came = []
    await world.create(unique_name, 1)
    await world.write(unique_name, 0, b"0", b"1", b"2")
    log = await world.log()
    following = log.follow((unique_name, 0), 1, came.extend)
    assert await caught_up(following) == 3
    assert (values(came), following.position) == ([b"1", b"2"], 3)
    await world.write(unique_name, 0, b"3")
    await world.until(lambda: len(came) == 3)
    assert await caught_up(following) == 4
    following.stop()
    await world.write(unique_name, 0, b"4")
    other = log.follow((unique_name, 0), None, lambda _records: None)
    await caught_up(other)
    await log.close()
    assert values(came) == [b"1", b"2", b"3"]
    assert [(one.topic, one.partition, one.offset, one.key) for one in came][:1] == [(unique_name, 0, 1, b"k")]


async def test_an_empty_log_is_caught_up_with_at_once(world, unique_name):
    await world.create(unique_name, 1)
    log = await world.log()
    assert await caught_up(log.follow((unique_name, 0), None, print)) == 0
    await log.close()


async def test_a_long_log_is_read_whole_beside_others_that_go_on(world, unique_name):
    long, short = [], []
    await world.create(unique_name, 2)
    await world.write(unique_name, 0, *(b"%d" % number for number in range(3_000)))
    log = await world.log()
    replay = log.follow((unique_name, 0), 0, long.extend)
    other = log.follow((unique_name, 1), 0, short.extend)
    await world.write(unique_name, 1, b"news")
    await world.until(lambda: short)
    assert await caught_up(replay) == 3_000
    assert await caught_up(other) == 1
    await log.close()
    assert values(long) == [b"%d" % number for number in range(3_000)]
    assert values(short) == [b"news"]


async def test_what_a_log_lacks_is_told_of(world, unique_name):
    cuts, said = [], []
    await world.create(unique_name, 1)
    await world.write(unique_name, 0, b"0", b"1", b"2")
    await world.delete_before(unique_name, 0, 2)
    log = await world.log()
    log.follow((unique_name, 0), 0, cuts.extend, cut=cuts.append)
    await world.until(lambda: cuts)
    assert cuts == [(2, 3)]
    log.follow((unique_name, 0), 0, cuts.extend, trouble=said.append)
    await world.until(lambda: said)
    assert str(said[0]) == f"{unique_name}[0] has offsets 2 to 3, not 0"
    came = []
    await caught_up(log.follow((unique_name, 0), None, came.extend))
    assert values(came) == [b"2"]
    await log.close()


async def test_a_partition_that_is_followed_twice_comes_twice_and_one_that_is_stopped_begins_anew(world, unique_name):
    first, second, third = [], [], []
    await world.create(unique_name, 1)
    await world.write(unique_name, 0, b"0", b"1")
    log, slot = await world.log(), (unique_name, 0)
    following = log.follow(slot, 0, first.extend)
    await caught_up(following)
    await caught_up(log.follow(slot, 1, second.extend))
    await world.write(unique_name, 0, b"2")
    await world.until(lambda: len(first) == 3 and len(second) == 2)
    following.stop()
    await caught_up(log.follow(slot, None, third.extend))
    await log.close()
    assert (values(first), values(second)) == ([b"0", b"1", b"2"], [b"1", b"2"])
    assert values(third) == [b"0", b"1", b"2"]


async def test_what_was_written_since_a_time_is_read(world, unique_name):
    came = []
    await world.create(unique_name, 2)
    await world.write(unique_name, 0, b"0", b"1")
    log, slot = await world.log(), (unique_name, 0)
    await caught_up(log.follow(slot, None, came.extend))
    since = log.follow(slot, Since(came[1].timestamp / 1000), came.extend)
    assert await caught_up(since) == 2
    later = log.follow((unique_name, 1), Since(came[1].timestamp / 1000 + 1e6), came.extend)
    assert await caught_up(later) == 0
    early, never = [], []
    for at in (-5.0, -1e30):
        await caught_up(log.follow(slot, Since(at), early.extend))
    await caught_up(log.follow(slot, Since(1e30), never.extend))
    assert (values(early), never) == ([b"0", b"1"] * 2, [])
    await world.write(unique_name, 1, b"2")
    await world.until(lambda: came[-1].value == b"2")
    await log.close()
    assert values(came)[:2] == [b"0", b"1"]
    assert b"1" in values(came)[2:-1]


async def test_a_partition_that_is_paused_is_read_when_it_is_resumed(world, unique_name):
    came = []
    await world.create(unique_name, 2)
    log = await world.log()
    following = log.follow((unique_name, 0), None, came.extend)
    await caught_up(following)
    following.pause()
    await caught_up(log.follow((unique_name, 1), None, came.extend))
    await world.write(unique_name, 0, b"0", b"1")
    read = []
    following.when_read(read.append)
    following.resume()
    await world.until(lambda: read)
    await log.close()
    assert read == [2]
    assert values(came) == [b"0", b"1"]
