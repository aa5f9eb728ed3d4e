"""A table of which each of several fronts follows only the partitions that it owns."""

from spillway.agents.live.topics import ensure
from spillway.lineage.keys import partition_for
from spillway.producers.cluster import idempotent_producer
from spillway.producers.published import Row, encode_row, key_of_shared
from spillway.topology.topics import topic_plan
from tests.waiting import PATIENT_SECONDS

PIPELINE = """
partitions: 4
stages:
  - name: rank
    model: stage_models:Pass
    workers: {fronts: 2}
    tables: {user: {of: taste, own: true}, item: {of: taste, key: id, own: true}}
learners:
  - {name: taste, model: "stage_models:Pass", state: {kind: keyed, shards: 2}, publish: true}
"""
KEYS = [f"k{number}" for number in range(12)]
NEW = ["new-a", "new-b", "new-c"]


def publish(one):
    ensure(one.settings, topic_plan(one.pipeline.learner("taste").spec))
    topic = f"{one.name}-taste.taste.table"
    producer = idempotent_producer(one.settings, topic, 60.0, {})
    for key in KEYS:
        row = encode_row(Row(key, 1, 1))
        producer.produce(topic, row, key.encode(), partition_for(key.encode(), 4))
    for shard in range(2):
        producer.produce(topic, encode_row(Row(f"shared/{shard}", 1, 1)), key_of_shared(shard), shard)
    assert producer.flush(60) == 0


class Asking:
    """Asks for each key, old and new, with each old one to look up; all of it again in each turn."""

    def __init__(self, one, until):
        self.one, self.out, self.until, self.turn = one, one.reader("outcomes"), until, 0

    def told(self):
        """By key of the message and key to look up: the outcome."""
        self.turn += 1
        pairs = {f"{self.turn}/{key}/{item}": (key, item) for key in (*KEYS, *NEW) for item in KEYS}
        for request_id, (key, item) in pairs.items():
            self.one.send(request_id, {"id": item}, key=key.encode(), within=int(PATIENT_SECONDS))
        self.one.flush()
        found = {}

        def answered():
            self.out.poll()
            found.update({pairs[told.request_id]: out for told, out in self.out.outcomes() if told.request_id in pairs})
            self.out.messages.clear()
            return len(found) == len(pairs)

        self.until(answered)
        return found


def found(told):
    """Those that were answered, and rightly so; None while a table was read anew."""
    answered = {pair: outcome for pair, outcome in told.items() if outcome.kind == "prediction"}
    for (key, item), outcome in answered.items():
        if "stale" in outcome.flags["rank"]:
            return None
        shared = f"shared/{partition_for(key.encode(), 4) % 2}"
        assert outcome.outputs["user"] == (shared if key in NEW else key)
        assert outcome.outputs["item"] == item
    return answered


def test_a_front_finds_what_is_in_its_own_partitions(stage, until):
    one = stage(PIPELINE)
    publish(one)
    asking = Asking(one, until)
    first = one.start("rank", 0)
    all_of_them = (len(KEYS) + len(NEW)) * len(KEYS)
    until(lambda: len(found(asking.told()) or ()) == all_of_them)
    second = one.start("rank", 1)

    def both_serve():
        told = asking.told()
        answered = found(told)
        return None if answered is None or len(answered) == all_of_them else (told, answered)

    told, answered = until(both_serve)
    assert all((key, key) in answered for key in KEYS)
    for pair in told.keys() - answered.keys():
        partition = partition_for(pair[1].encode(), 4)
        assert told[pair].reason == "bad-input"
        assert f"key '{pair[1]}' is in partition {partition}, which this front does not own" in told[pair].text
    assert one.stop(second) == 0
    until(lambda: len(found(asking.told()) or ()) == all_of_them)
    assert one.stop(first) == 0
