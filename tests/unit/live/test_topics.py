"""Topics on a cluster that is made up: what is counted of it, and what the operator is told."""

from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException

from spillway.agents.live import topics
from spillway.lineage.errors import TopicError
from spillway.producers.connection import ClientSettings
from spillway.topology.load import parse
from spillway.topology.topics import UNCLEAN, topic_plan

PLAN = topic_plan(parse("{name: p, slo: 1, stages: [{name: a, model: 'm:M', state: shared}]}").spec)


class Cluster:
    """Stands for an AdminClient of a cluster that has all topics as planned, on these brokers."""

    def __init__(self, replicas, **config):
        self.replicas = replicas
        self.config = {key.replace("_", "."): value for key, value in config.items()}

    def __call__(self, *_args, **_named):
        return self

    def list_topics(self, **_named):
        partition = {number: SimpleNamespace(leader=0, replicas=range(n)) for number, n in enumerate(self.replicas)}
        one = {0: SimpleNamespace(leader=0, replicas=range(min(self.replicas)))}
        made = {topic.name: partition if topic.partitions > 1 else one for topic in PLAN}
        return SimpleNamespace(
            topics={name: SimpleNamespace(partitions=each, error=None) for name, each in made.items()}
        )

    def describe_configs(self, resources, **_named):
        planned = {topic.name: topic.config for topic in PLAN}
        return {resource: self._future({**planned[resource.name], **self.config}) for resource in resources}

    def _future(self, config):
        return SimpleNamespace(result=lambda: {key: SimpleNamespace(value=value) for key, value in config.items()})


def ensured(monkeypatch, cluster):
    said = []
    monkeypatch.setattr(topics, "AdminClient", cluster)
    assert topics.ensure(ClientSettings(bootstrap="b:1"), PLAN, say=said.append) == ()
    return said


class Slow(Cluster):
    """Of its brokers the one that is asked for settings is the last to hear of a new topic."""

    asked = 0

    def describe_configs(self, resources, **_named):
        self.asked += 1
        if self.asked > 2:
            return super().describe_configs(resources)
        unknown = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        return {resource: SimpleNamespace(result=Mock(side_effect=unknown)) for resource in resources}


def test_a_broker_that_has_not_heard_of_a_new_topic_is_asked_again(monkeypatch):
    cluster = Slow([3] * 12, min_insync_replicas="2")
    assert len(ensured(monkeypatch, cluster)) == 1
    assert cluster.asked == 3


@pytest.mark.parametrize(
    ("replicas", "least", "says"),
    [
        ([3] * 11 + [1], "2", "one copy of everything, on one broker's disk:"),  # the partition with the fewest counts
        ([3] * 12, "1", "a write is acknowledged when it is on the leader's disk, and copied to 2 more later:"),
        ([3] * 12, "2", "every acknowledged write is on the disks of 2 brokers, and soon on 3:"),
    ],
)
def test_it_is_told_how_many_disks_have_a_write(monkeypatch, replicas, least, says):
    (told,) = ensured(monkeypatch, Cluster(replicas, min_insync_replicas=least))
    assert told.startswith(says)


def test_a_leader_that_may_lag_is_refused(monkeypatch):
    with pytest.raises(TopicError, match=rf"topic 'p.a.state' has {UNCLEAN} = true, required false"):
        ensured(monkeypatch, Cluster([3] * 12, **{UNCLEAN: "true"}))


class Torn(Cluster):
    """One that has lost a topic until it is made again."""

    lost: tuple[str, ...] = ("p.outcomes",)

    def list_topics(self, **_named):
        listed = super().list_topics()
        for name in self.lost:
            del listed.topics[name]
        return listed

    def create_topics(self, new, **_named):
        self.lost = ()
        return {topic.topic: SimpleNamespace(result=lambda: None) for topic in new}


@pytest.mark.parametrize("served", [True, False])
def test_a_topic_that_is_missing_of_a_pipeline_that_was_served_is_told_with_what_it_costs(monkeypatch, served):
    said = []
    monkeypatch.setattr(topics, "AdminClient", Torn([3] * 12, min_insync_replicas="2"))
    monkeypatch.setattr(topics, "written", lambda _settings, topic, _partitions: served and topic == "p.ingress")
    assert topics.ensure(ClientSettings(bootstrap="b:1"), PLAN, say=said.append) == ("p.outcomes",)
    warned = [each for each in said if "has no p.outcomes now" in each]
    assert len(warned) == served
    assert all("'spillway broker topics delete'" in each for each in warned)
