from types import SimpleNamespace

from agents.live.consumer.thread import InstanceAssignor


def shares(instances, partitions, topics=("t",)):
    cluster = SimpleNamespace(partitions_for_topic=lambda topic: set(range(partitions)) if topic in topics else None)
    members = {member: InstanceAssignor(instance).metadata(["t"]) for member, instance in instances.items()}
    assigned = InstanceAssignor("any").assign(cluster, members)
    return {member: dict(assignment.assignment).get("t", []) for member, assignment in assigned.items()}


def test_partitions_are_dealt_out_by_instance_whatever_the_member_ids():
    first = shares({"zz": "p.s.0", "aa": "p.s.1"}, 5)
    again = shares({"bb": "p.s.0", "yy": "p.s.1"}, 5)
    assert first == {"zz": [0, 2, 4], "aa": [1, 3]}
    assert again == {"bb": [0, 2, 4], "yy": [1, 3]}


def test_replica_numbers_count_as_numbers():
    members = {f"m{number}": f"p.s.{number}" for number in range(11)}
    assigned = shares(members, 11)
    assert [assigned[f"m{number}"] for number in range(11)] == [[number] for number in range(11)]


def test_more_members_than_partitions_and_unknown_topics():
    assert shares({"a": "p.s.0", "b": "p.s.1"}, 1) == {"a": [0], "b": []}
    assert shares({"a": "p.s.0"}, 3, topics=()) == {"a": []}
