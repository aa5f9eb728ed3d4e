"""Who is in a consumer group, as its coordinator tells it; and that nobody asks librdkafka for that."""

from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from spillway import agents
from spillway.agents.broker.ports import free_port
from spillway.agents.live.group_members import GroupMember, GroupMembers
from spillway.lineage.errors import BrokerError
from spillway.producers.connection import ClientSettings
from tests.waiting import until

from .conftest import make_topics


@pytest.fixture
def join(broker, unique_name):
    """Make a member of the group g, static where it has an instance id; all of them leave in the end."""
    make_topics(broker, {unique_name: 3})
    members = []

    def joined(**settings):
        consumer = Consumer({"bootstrap.servers": broker, "group.id": f"{unique_name}.g", **settings})
        members.append(consumer)
        consumer.subscribe([unique_name])
        until(lambda: consumer.poll(0.1) or consumer.assignment(), 90)
        return consumer

    yield joined
    for consumer in members:
        consumer.close()


def test_members_are_told_with_their_partitions(join, broker, unique_name):
    join(**{"group.instance.id": f"{unique_name}.g.7"})
    groups = [f"{unique_name}.g", f"{unique_name}.none"]
    with closing(GroupMembers(ClientSettings(bootstrap=broker))) as asking:
        for _ in range(2):
            told = asking.ask(groups)
            assert told == {groups[0]: [GroupMember(f"{unique_name}.g.7", (0, 1, 2))], groups[1]: []}


def test_a_member_that_is_not_static_has_its_client_id(join, broker, unique_name):
    join(**{"client.id": "some-body.x"})
    with closing(GroupMembers(ClientSettings(bootstrap=broker))) as asking:
        (member,) = asking.ask([f"{unique_name}.g"])[f"{unique_name}.g"]
    assert member.name == "some-body.x"


def test_where_nobody_answers_that_is_said():
    with pytest.raises(BrokerError, match="who is in the groups a, b"):
        GroupMembers(ClientSettings(bootstrap=f"127.0.0.1:{free_port()}")).ask(["a", "b"])


def test_no_process_that_stays_asks_librdkafka_about_groups():
    """It may be ended by that (`spillway.agents.live.group_members`)."""
    package = Path(agents.__file__).parent
    asking = ("describe_consumer_groups(", "list_consumer_group_offsets(", "alter_consumer_group_offsets(")
    found = [path for path in package.rglob("*.py") if any(each in path.read_text() for each in asking)]
    assert found == []
