"""Where a query is found on the topics of a pipeline whose gate does not run."""

import time

import pytest
from confluent_kafka import Producer

from spillway.agents.live.operator.inspection import HELD, NOT_FOUND, describe
from spillway.agents.live.operator.sightings import search
from spillway.agents.live.topics import ensure
from spillway.lineage.headers import Headers, encode
from spillway.lineage.hops import Hop
from spillway.lineage.keys import partition_for
from spillway.lineage.marks import Mark, Version
from spillway.lineage.message import PREDICTION, Outcome
from spillway.lineage.values.codec import encode_outcome
from spillway.producers.connection import ClientSettings
from spillway.topology.spec import PipelineSpec
from spillway.topology.topics import outcomes, topic_plan


@pytest.fixture
def spec(broker, unique_name):
    stage = {"name": "count", "model": "m:Count", "state": {"kind": "shared"}}
    made = PipelineSpec.model_validate({"name": unique_name, "slo": "1s", "partitions": 3, "stages": [stage]})
    ensure(ClientSettings.load(broker), topic_plan(made))
    return made


def test_an_outcome_that_rests_on_a_version_that_is_not_durable_is_held(spec, broker):
    settings, now = ClientSettings.load(broker), time.time()
    partition = partition_for(b"user", 3)
    hop = Hop("count", 1, partition, 0, 0, (Mark("count", 0, Version(1, 7)),))
    headers = encode(Headers("q", int(now * 1e6), int(now * 1e6) + 1_000_000, hop))
    producer = Producer(settings.confluent())
    producer.produce(outcomes(spec.name), encode_outcome(Outcome(PREDICTION)), b"user", partition, headers=headers)
    producer.flush()
    for where in ({"key": "user"}, {"at": now}):  # its key's partition; or all, as its id says another one
        told = describe(search(settings, spec, "q", **where), spec)
        assert (told["state"], told["key"], told["partition"]) == (HELD, "user", partition)
        assert told["waits_for"] == {"count/0 e1.v7": "unread"}
        assert [each["done"] for each in told["seen"]] == [{"gate": False}]
    assert describe(search(settings, spec, "q", at=now + 120), spec)["state"] == NOT_FOUND
