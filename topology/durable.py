"""What "durable" means on a given cluster, in plain words: on how many disks a record is when a broker has taken it.

The guarantee of stateful stages rests on Kafka keeping what it has acknowledged. How well it does is the cluster's own:
the replication factor, min.insync.replicas, and whether a replica that lags may become leader, which loses what was
acknowledged. The last is refused (`topology.topics` requires it to be off); of the others the operator is told, once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topology.topics import UNCLEAN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topology.topics import ActualTopic, TopicRequirement

_INSYNC: Final = "min.insync.replicas"


def meaning(plan: Sequence[TopicRequirement], actual: Mapping[str, ActualTopic]) -> str | None:
    """What to tell the operator; None where no state rests on the topics."""
    topics = {topic.name: actual[topic.name] for topic in plan if UNCLEAN in topic.config and topic.name in actual}
    single = [name for name, topic in topics.items() if topic.replicas <= 1]
    if single:
        return (
            f"durable means: on one broker's disk; the loss of that disk loses states and accepted queries "
            f"({_which(single, topics)} replication factor 1; for more, set default.replication.factor to 3 and "
            f"{_INSYNC} to 2 on the brokers before the topics are created)"
        )
    alone = [name for name, topic in topics.items() if _insync(topic) <= 1]
    if alone:
        copies = min(topics[name].replicas for name in alone)
        return (
            f"durable means: on the leader's disk, and soon on {copies - 1} more; the loss of a leader whose followers "
            f"lag loses states and accepted queries ({_which(alone, topics)} {_INSYNC} 1; set it to 2)"
        )
    if not topics:
        return None
    copies, insync = min(topic.replicas for topic in topics.values()), min(map(_insync, topics.values()))
    soon = f", and soon of {copies}" if copies > insync else ""
    lost = "any one of them" if insync == 2 else f"any {insync - 1} of them"  # noqa: PLR2004 - two disks
    return f"durable means: on the disks of {insync} brokers{soon}; the loss of {lost} loses nothing"


def _insync(topic: ActualTopic) -> int:
    value = topic.config.get(_INSYNC)
    return int(value) if value is not None and value.isdigit() else 1


def _which(names: Sequence[str], of: Mapping[str, ActualTopic]) -> str:
    if len(names) == len(of):
        return "the pipeline's topics have"
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"topic {names[0]!r}{more} {'have' if more else 'has'}"
