"""The oracle of states passes right histories, and catches each wrong one by its name."""

from dataclasses import replace

import pytest

from spillway.checkpoint.manifests import open_contents
from spillway.checkpoint.versions import INITIAL, Version
from spillway.lineage.headers import Headers
from spillway.lineage.headers import encode as encode_headers
from spillway.lineage.hops import Hop
from spillway.lineage.marks import Mark
from spillway.lineage.message import DROPPED, PREDICTION, Outcome
from spillway.lineage.replication import InputRecord
from spillway.lineage.values.codec import encode_outcome
from spillway.lineage.values.replication import ReplicationDecoder, encode
from tests.state_oracle import Judge

from .histories import JOIN, World


def found(problems, *words):
    assert any(all(word in problem for word in words) for problem in problems), problems


@pytest.fixture
def world():
    world = World()
    world.serve(1, 2, 3)
    world.serve(4)
    return world


@pytest.mark.parametrize(("model", "kind"), [("Chain", "shared"), ("Users", "keyed")])
def test_a_right_history_has_no_problem(model, kind):
    world = World(model, kind)
    for batch in ((1, 2, 3), (4,), (5, 6)):
        world.serve(*batch)
    assert world.problems() == []


def test_a_model_with_chance_is_judged_by_hash_alone():
    world = World("Dice")
    world.serve(1, 2)
    found(world.problems(), "b/0 e1.v1: its state is not that of a replay", "thrown")
    assert world.problems(random={"b"}) == []


# a: outcomes ---------------------------------------------------------------------------------------------------


def test_a_query_without_an_outcome_is_told(world):
    world.recording.topics["p.egress"].pop()
    found(world.problems(), "q4: no outcome")


def test_a_second_outcome_is_told(world):
    world.recording.topics["p.egress"].append(world.recording.topics["p.egress"][0])
    found(world.problems(), "q1: 2 outcomes")


def test_a_drop_is_told_where_none_may_be(world):
    last = world.recording.topics["p.egress"].pop()
    value = encode_outcome(Outcome(DROPPED, reason="expired", stage="b"))
    world.recording.topics["p.egress"].append(replace(last, value=value))
    found(world.problems(), "q4: wrong outcome dropped", "expired")


# b: releases ---------------------------------------------------------------------------------------------------


def test_an_outcome_released_before_its_version_was_durable_is_told(world):
    passed = world.send(world.a, world.a.take(world.ask(5)))
    world.a.complete()
    reports = world.report(world.b.take(passed))
    world.release(reports)
    world.b.complete()
    found(world.problems(), "q5, released at p.egress[1]", "before b/0 e1.v3 was durable")


def test_an_outcome_released_before_a_version_that_its_own_requires_is_told(world):
    passed = world.send(world.a, world.a.take(world.ask(5)))
    reports = world.report(world.b.take(passed))
    world.b.complete()
    world.release(reports)
    world.a.complete()
    found(world.problems(), "q5, released at", "before b/0 e1.v3 was durable")


def test_an_outcome_that_rests_on_a_lost_version_is_told(world):
    passed = world.send(world.a, world.a.take(world.ask(5)))
    world.a.complete()
    world.release(world.report(world.b.take(passed)))
    world.b.reign(2, Version(1, 2))
    found(world.problems(), "q5, released at", "it rests on b/0 e1.v3, which is dead")


def test_an_outcome_that_rests_on_a_version_that_never_was_complete_is_told(world):
    passed = world.send(world.a, world.a.take(world.ask(5)))
    world.a.complete()
    world.release(world.report(world.b.take(passed)))
    found(world.problems(), "q5, released at", "it rests on b/0 e1.v3, which is open")


def test_an_outcome_without_marks_is_told(world):
    (request,) = world.ask(5)[0][:1]
    value = encode_outcome(Outcome(PREDICTION, {"x": 5}, stage="b"))
    world.write("p.egress", 1, request.encode(), value, world.pairs(request, Hop("b", 1, 1, 2, 0)))
    found(world.problems(), "q5, released at", "it says of no version")


# f: grounds ----------------------------------------------------------------------------------------------------


def test_a_durable_version_that_is_made_of_a_dead_one_is_told(world):
    passed = world.send(world.a, world.a.take(world.ask(5)))  # by e1.v3, which never is complete
    world.b.requires.clear()  # what its manifest says it rests on
    reports = world.report(world.b.take(passed))
    world.b.complete()
    world.a.reign(2, Version(1, 2))
    world.release(reports)
    found(world.problems(), "q5: b/0 e1.v3 is made of a/0 e1.v3, which is dead")


def joined(*, heard, lost=False):
    """What the oracle says of a join whose version has taken a's part, and that of the stateless s if it is `heard`."""
    world = World(pipeline=JOIN)
    asked = world.ask(1)
    (part,) = world.send(world.a, world.a.take(asked))
    world.a.complete()
    request, partition, offset, value = asked[0]
    hop = Hop("s", 1, partition, offset, 0)
    pairs = encode_headers(Headers(request, 1, 2, hop, lost=("s",) if lost else ()))
    other = world.write("p.b", partition, request.encode(), value, pairs)
    world.b.take([part])
    if heard:
        (batch,) = world.b.recorded
        world.b.recorded = [replace(batch, taken=(*batch.taken, InputRecord(request, partition, other)))]
    world.b.complete()
    return Judge(world.recording).grounds()


def test_a_join_that_went_on_without_a_part_is_told():
    found(joined(heard=False), "q1: b/0 e1.v1 went on without s, whose result stands")


def test_a_join_that_heard_all_parts_is_right():
    assert joined(heard=True) == []


def test_a_join_may_go_on_without_a_part_that_was_lost():
    assert joined(heard=False, lost=True) == []


# c: states -----------------------------------------------------------------------------------------------------


def test_an_update_that_was_made_twice_is_told(world):
    world.a.machine.compute([{"x": 4}])
    world.a.machine.update()
    world.serve(5)
    problems = world.problems()
    found(problems, "a/0 e1.v3: its state is not that of a replay of its batches", "chain", "queries")
    found(problems, "q5: a has sent", "to p.b (a/0 e1.v3), a replay gives")


def test_a_batch_recorded_in_another_order_than_applied_is_told(world):
    passed = world.a.take(world.ask(5, 7))
    world.a.recorded[-1] = replace(world.a.recorded[-1], taken=world.a.recorded[-1].taken[::-1])
    reports = world.send(world.a, passed)
    world.a.complete()
    reports = world.report(world.b.take(reports))
    world.b.complete()
    world.release(reports)
    found(world.problems(), "a/0 e1.v3: its state is not that of a replay")


@pytest.mark.parametrize(("value", "words"), [(None, "is missing"), (b"other", "has 5 bytes instead of")])
def test_a_damaged_chunk_is_told(world, value, words):
    records = world.recording.topics["p.b.state"]
    newest = max((record for record in records if record.key.startswith(b"1/2/")), key=lambda record: record.offset)
    world.write("p.b.state", 0, newest.key, value)
    found(world.problems(), f"b/0: the chunk {newest.key.decode()} of the state", words)


def test_chunks_with_other_bytes_of_the_same_size_are_told(world):
    newest = world.recording.topics["p.b.state"][-1]
    world.write("p.b.state", 0, newest.key, bytes(len(newest.value)))
    found(world.problems(), f"the chunk {newest.key.decode()} of the state", "has bytes that differ from those written")


def test_a_manifest_with_another_digest_is_told(world):
    last = world.recording.topics["p.a.versions"].pop()
    manifest = ReplicationDecoder().manifest(last.value)
    world.recording.topics["p.a.versions"].append(replace(last, value=encode(replace(manifest, digest=bytes(16)))))
    found(world.problems(), "a/0 e1.v2: its contents have another digest than its manifest says")


def test_a_version_that_nobody_has_recorded_is_told(world):
    last = world.recording.topics["p.a.versions"].pop()
    manifest = ReplicationDecoder().manifest(last.value)
    contents = open_contents(manifest, lambda _key: None)
    changed = replace(manifest, contents=encode(replace(contents, batches=())))
    world.recording.topics["p.a.versions"].append(replace(last, value=encode(changed)))
    problems = world.problems()
    found(problems, "a/0: no record of version 2")
    found(problems, "q4: a has no record of it")


# d: conflicts --------------------------------------------------------------------------------------------------


def test_two_live_outputs_of_one_hop_are_told(world):
    hop = Hop("a", 1, 0, 1, 0, (Mark("a", 0, Version(1, 2)),))
    other = encode_outcome(Outcome(PREDICTION, {"x": 99}, stage="b"))
    world.write("p.b", 0, b"q4", other, world.pairs("q4", hop))
    found(world.problems(), "q4: a has sent to p.b both query", "prediction {'x': 99} (a/0 e1.v2)")


def test_a_query_that_changes_a_state_twice_is_told(world):
    again = world.recording.topics["p.ingress"][-1]
    passed = world.send(world.a, world.a.take([("q4", 0, again.offset, again.value)]))
    world.a.complete()
    world.report(world.b.take(passed))
    world.b.complete()
    problems = world.problems()
    found(problems, "q4: a/0 has applied it in e1.v2 and again in e1.v3")
    found(problems, "q4: a/0 offset 1 of partition 0 is taken in e1.v2 and again in e1.v3")
    found(problems, "q4: a has sent to p.b both")


# e: progress ---------------------------------------------------------------------------------------------------


def test_a_version_that_never_becomes_durable_is_told(world):
    passed = world.send(world.a, world.a.take(world.ask(5)))
    world.report(world.b.take(passed))
    world.b.complete()
    problems = world.problems()
    found(problems, "b/0: e1.v3 is complete and not durable, which is e1.v2")
    found(problems, "q5: no outcome")
    found(problems, "q5: a has no record of it")


def test_a_tombstone_that_takes_what_is_needed_is_told(world):
    """A newcomer does not find the manifest that everybody has judged by."""
    last = world.recording.topics["p.a.versions"][-1]
    world.write("p.a.versions", 0, last.key, None)
    found(world.problems(), "a/0: a newcomer finds e1.v1 durable, and not e1.v2")


def test_a_log_that_cannot_be_is_told(world):
    world.a.chain = ((1, INITIAL), (2, Version(1, 1)))
    world.a.n = 7
    world.a.complete()
    found(world.problems(), "p.a.versions[0] offset 4", "has another chain")


def test_a_base_below_what_was_durable_is_told(world):
    world.b.reign(2, Version(1, 1))
    found(world.problems(), "p.b.versions[0]", "older than the durable e1.v2")
