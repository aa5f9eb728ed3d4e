"""What a stage looks up for its queries: rows by key, versions, flags, and who has to wait for a newer row."""

from types import SimpleNamespace

import pytest

from spillway.agents.core.dispatch import Extra, Group, Recovery
from spillway.agents.core.request import Delivery, Request
from spillway.agents.core.workers import Batch
from spillway.agents.live.stage.lookups import Lookups
from spillway.agents.live.stage.redundancy_workers import CopyWork
from spillway.agents.run.emission import Carried
from spillway.lineage.errors import WireError
from spillway.lineage.headers import AFTER, Headers
from spillway.lineage.keys import partition_for
from spillway.lineage.message import Query
from spillway.lineage.values import codec
from spillway.producers import published
from spillway.producers.published import Row, encode_row, key_of_shared
from spillway.topology.load import parse
from tests.unit.live.stateful.builders import request
from tests.unit.live.test_batch_work import batch_work, functions

PIPELINE = """
name: p
slo: 1s
partitions: 4
stages:
  - {name: rank, model: "m:Rank", tables: {user: {of: taste}, item: {of: taste, key: id}}}
learners:
  - {name: taste, model: "m:Taste", state: {kind: keyed, shards: 2}, publish: true}
"""
SHARD = partition_for(b"ada", 4) % 2


@pytest.fixture
def tables(monkeypatch):
    """What is followed: by topic, what tells a change; and whether it is stale."""
    told = SimpleNamespace(heard=[], stale=False, followed=[], waits=[])

    def table(_settings, topic, heard, partitions=None):
        assert topic == "p-taste.taste.table"
        told.heard.append(heard)
        told.followed.append(partitions)
        return SimpleNamespace(stale=told.stale, follow=told.followed.append, wait=told.waits.append)

    def change(key, value):
        for heard in told.heard:
            heard(key, value)

    told.change = change
    told.put = lambda key, value, epoch, n: change(key, encode_row(Row(value, epoch, n)))
    monkeypatch.setattr(published, "Table", table)
    return told


@pytest.fixture
def lookups(tables):
    spec = parse(PIPELINE).spec
    made = Lookups(None, spec, spec.stage("rank"), None)
    assert len(tables.heard) == 2
    return made


def query(key="ada", after=None, **inputs):
    extra = [] if after is None else [(AFTER, after.encode())]
    carried = Carried(SimpleNamespace(key=key.encode()), Headers("q", 0, 0, extra=extra), Query(inputs))
    return Request("q", 0, 0.0, 1.0, 0.0, (Delivery("q", 0, 0, 0.0, 1.0, "", None, payload=carried),), {})


def test_rows_are_found_by_key_else_what_the_shard_shares(lookups, tables):
    tables.put(b"ada", [1], 2, 7)
    tables.put(b"ada", [0], 1, 9)  # of an owner that was replaced
    tables.change(b"ada", b"no row")
    tables.put(key_of_shared(partition_for(b"x", 4) % 2), "of all", 1, 1)
    inputs, flags = lookups.add({"id": "x", "a": 1}, query(id="x"))
    assert inputs == {
        "id": "x",
        "a": 1,
        "user": [1],
        "user.version": [2, 7],
        "item": "of all",
        "item.version": [1, 1],
    }
    assert flags == {"request": "q", "keys": {"taste": "x"}, "versions": {"user": [2, 7], "item": [1, 1]}}
    tables.change(b"ada", None)
    tables.change(key_of_shared(0), None)
    tables.change(key_of_shared(1), None)
    inputs, flags = lookups.add({"id": "ada"}, query())
    assert inputs["user"] is inputs["user.version"] is None
    assert flags["versions"] == {"user": None, "item": None}
    with pytest.raises(WireError, match="input 'id', the key of table 'item', is int, not a text"):
        lookups.add({"id": 3}, query())


@pytest.mark.parametrize(
    ("after", "behind"),
    [
        (None, False),
        (f"taste/{SHARD}/2/7", False),
        (f"taste/{SHARD}/1/9", False),
        (f"taste/{SHARD}/2/8", True),
        (f"taste/{SHARD}/3/1", True),
        (f"taste/{1 - SHARD}/3/1", False),  # of another key
        (f"other/{SHARD}/3/1", False),
        ("nonsense", False),
    ],
)
def test_a_query_waits_for_the_version_that_its_token_names(lookups, tables, after, behind):
    tables.put(b"ada", 1, 2, 7)
    asked = query(after=after, id="ada")
    assert lookups.behind(asked) is behind
    _, flags = lookups.add({"id": "ada"}, asked)
    assert flags.get("stale", False) is behind


SHARED = key_of_shared(SHARD)


def test_who_waits_is_told_of_what_it_waits_for(lookups, tables):
    asked = query(after=f"taste/{SHARD}/2/8", id="ada")
    assert lookups.wants(asked) == ((("user", b"ada"), (2, 8)), (("user", SHARED), (2, 8)))
    tables.put(SHARED, 1, 2, 7)
    tables.put(b"ada", 1, 2, 6)
    tables.put(b"ada", 1, 2, 5)  # older, so no news
    assert lookups.wants(asked) == ((("user", b"ada"), (2, 8)),)  # its own row is what it is given
    both = {(table, b"ada"): (2, 6) for table in ("user", "item")}
    assert lookups.news() == both | {(table, SHARED): (2, 7) for table in ("user", "item")}
    tables.change(b"ada", None)
    tables.put(SHARED, 1, 2, 8)
    assert not lookups.wants(asked)
    assert lookups.news()["user", b"ada"] is None
    assert lookups.news() == {}


def test_more_changes_than_are_kept_may_be_any(lookups):
    for number in range(20_000):
        lookups._changed("user", b"%d" % number, Row(1, 1, number))
    assert lookups.news() is None
    assert lookups.news() == {}


def test_of_its_own_partitions_alone_a_front_finds_what_is_in_them(tables):
    spec = parse(PIPELINE.replace("key: id}", "key: id, own: true}")).spec
    lookups = Lookups(None, spec, spec.stage("rank"), None)
    assert tables.followed == [range(4), ()]
    own = partition_for(b"ada", 4)
    other = next(key for key in "abcdefgh" if partition_for(key.encode(), 4) != own)
    lookups.own([own])
    assert tables.followed[2:] == [{own, own % 2}]  # the shard's shared row is in the partition of its number
    lookups.read()
    lookups.read(own=True)
    assert len(tables.waits) == 2
    tables.put(b"ada", 1, 2, 7)
    tables.put(other.encode(), 1, 2, 7)
    assert lookups.add({"id": "ada"}, query())[0]["item"] == 1
    token = f"taste/{partition_for(other.encode(), 4) % 2}/3/1"
    assert not lookups.behind(query(id=other, after=token))  # it need not wait to fail
    with pytest.raises(WireError, match=f"table 'item' has 'own: true', and key '{other}' is in partition"):
        lookups.add({"id": other}, query())
    lookups.own(range(4))
    assert lookups.add({"id": other}, query())[0]["item"] == 1


@pytest.mark.parametrize("copy_last", [False, True])
def test_an_outcome_tells_the_version_that_its_own_answer_was_made_of(copy_last):
    versions = iter(range(1, 9))

    def add(inputs, _request):
        version = next(versions)
        return {**inputs, "user.version": version}, {"versions": {"user": [0, version]}}

    work = batch_work(None, functions(), lookups=SimpleNamespace(add=add))
    asked = request(0, {"x": 1}, key="ada")
    batch, group, copies = Batch(0, [asked], 0.0, 0.0), Group(), CopyWork(work, "m")
    group.batches.append(batch)
    own = work.prepare(batch)
    group.rows[0] = extra = Extra(group, 0)
    copied = copies.prepare(extra)

    def answer(prepared):
        return {"outputs": {"made of": prepared.inputs[0]["user.version"]}}

    def by_copy():
        copies.result(copied, 0, answer(copied), 0.1)
        ((_, (result,)),) = copies.recover(Recovery(group, (0,)))
        return result

    turns = [lambda: work.result(own, 0, answer(own), 0.1), by_copy]
    for result in [turn() for turn in (turns if copy_last else turns[::-1])]:
        outcome = codec.Decoder().outcome(result.payloads[None])
        assert outcome.flags["s"]["versions"]["user"] == [0, outcome.outputs["made of"]]
