"""The topics of a pipeline: their names, what each must be, and where a cluster has them otherwise.

A requirement's settings are what the topic is created with. A topic that is there already may have more than that of
what only has to suffice (`AT_LEAST`), less of what must not be more (`AT_MOST`), and must be equal in the rest.
Left to the cluster: the replication factor and min.insync.replicas, as they go with the number of its brokers
(`durability` says what they come to). Where states are replicated, no topic that the guarantee rests on may have
a leader that lags (`UNCLEAN`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from spillway.topology import names
from spillway.topology.quantities import show_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from spillway.topology.spec import PipelineSpec


# What "durable" means on a given cluster, in plain words: on how many disks a record is when a broker has taken it.
#
# The guarantee of stateful stages rests on Kafka keeping what it has acknowledged. How well it does is the cluster's
# own: the replication factor, min.insync.replicas, and whether a replica that lags may become leader, which loses what
# was acknowledged. The last is refused (`spillway.topology.topics` requires it to be off); of the others the operator
# is told, once.

_INSYNC: Final = "min.insync.replicas"


def durability(plan: Sequence[TopicRequirement], actual: Mapping[str, ActualTopic]) -> str | None:
    """What to tell the operator; None where no state rests on the topics."""
    topics = {topic.name: actual[topic.name] for topic in plan if UNCLEAN in topic.config and topic.name in actual}
    single = [name for name, topic in topics.items() if topic.replicas <= 1]
    if single:
        return (
            f"one copy of everything, on one broker's disk: if that disk is lost, states and accepted queries are lost "
            f"({_which(single, topics)} replication factor 1; for more, set default.replication.factor to 3 and "
            f"{_INSYNC} to 2 on the brokers before the topics are created)"
        )
    alone = [name for name, topic in topics.items() if _insync(topic) <= 1]
    if alone:
        copies = min(topics[name].replicas for name in alone)
        return (
            f"a write is acknowledged when it is on the leader's disk, and copied to {copies - 1} more later: if a "
            f"leader is lost while its followers lag, states and accepted queries are lost ({_which(alone, topics)} "
            f"{_INSYNC} 1; set it to 2)"
        )
    if not topics:
        return None
    copies, insync = min(topic.replicas for topic in topics.values()), min(map(_insync, topics.values()))
    soon = f", and soon on {copies}" if copies > insync else ""
    lost = "any one of them" if insync == 2 else f"any {insync - 1} of them"  # noqa: PLR2004 - two disks
    return f"every acknowledged write is on the disks of {insync} brokers{soon}: losing {lost} loses no data"


def _insync(topic: ActualTopic) -> int:
    value = topic.config.get(_INSYNC)
    return int(value) if value is not None and value.isdigit() else 1


def _which(names: Sequence[str], of: Mapping[str, ActualTopic]) -> str:
    if len(names) == len(of):
        return "the pipeline's topics have"
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"topic {names[0]!r}{more} {'have' if more else 'has'}"


AT_LEAST: Final = frozenset({"max.message.bytes", "retention.ms", "retention.bytes", "min.compaction.lag.ms"})
AT_MOST: Final = frozenset({"delete.retention.ms", "segment.bytes", "min.cleanable.dirty.ratio"})
UNCLEAN: Final = "unclean.leader.election.enable"  # a leader that lags loses what was acknowledged
HEADERS_BYTES: Final = 64 << 10  # beyond the value of a record: its headers, key, and its batch's own
STATE_BYTES: Final = 1 << 20  # a chunk of 256 KiB and its key; a manifest with 16 KiB of contents, its chain and tables
_STATE_SEGMENT: Final = 8 << 20  # what is in the newest segment is not compacted: it is to be less than most states
_STATE_DIRTY: Final = "0.2"
"""A log is compacted once a fifth of it may be: at Kafka's half it would rest at twice what is needed. Each pass writes
what is kept anew, four bytes for each that goes. When a record may go says min.compaction.lag.ms alone."""
_BEATS: Final = {"cleanup.policy": "delete", "retention.ms": "600000", "segment.bytes": str(1 << 20)}
_LAG_SECONDS: Final = 60.0
_LAG_LEASES: Final = 5
_DAY_MS: Final = 24 * 3_600 * 1_000
_COMPACT: Final = {"cleanup.policy": "compact", "delete.retention.ms": "60000"}
_UNBOUNDED: Final = -1  # how Kafka writes that there is no limit


@dataclass(frozen=True, slots=True)
class TopicRequirement:
    """One topic that a pipeline needs."""

    name: str
    partitions: int
    config: Mapping[str, str] = field(hash=False)
    purpose: str
    wished: Mapping[str, str] = field(default_factory=dict, hash=False)  # what it is made with, and may be without


MODELS: Final = "spillway.models"  # of the cluster: the registered models of all applications


@dataclass(frozen=True, slots=True)
class ActualTopic:
    """One topic as a cluster has it, with its effective settings."""

    partitions: int
    config: Mapping[str, str | None] = field(hash=False)
    replicas: int = 1  # of the partition that has the fewest


def _of(what: str) -> Callable[[str], str]:
    """Return what gives a pipeline's topic of that name."""
    return lambda pipeline: f"{pipeline}.{what}"


ingress: Final = _of("ingress")
outcomes: Final = _of("outcomes")
egress: Final = _of("egress")
replies: Final = _of("replies")
"""The consumer group that says which client reads which partitions of the egress, where clients share them."""
dead: Final = _of("dead")
schemas: Final = _of("schemas")
plan: Final = _of("plan")
control: Final = _of("control")
beat: Final = _of("beat")
"""The members' heartbeats, and reports that one is dead."""
owners: Final = _of("owners")
sizes: Final = _of("sizes")
generations: Final = _of("generations")
"""Which generation of a Velox model is current, and how it came to that."""


def stage_input(pipeline: str, stage: str) -> str:
    """The topic that a stage other than a root reads; a root reads the ingress."""
    return f"{pipeline}.{stage}"


def onward(pipeline: str, successors: Iterable[str]) -> tuple[str, ...]:
    """Where a stage's results and losses go: the inputs of its `successors`, and the outcomes."""
    return (*(stage_input(pipeline, successor) for successor in successors), outcomes(pipeline))


def versions(pipeline: str, stage: str) -> str:
    """The topic of a stateful stage's version logs: partition s is shard s's."""
    return f"{pipeline}.{stage}.versions"


def state(pipeline: str, stage: str) -> str:
    """The topic of the chunks of a stateful stage's versions; partition s is shard s's."""
    return f"{pipeline}.{stage}.state"


def table(pipeline: str, stage: str) -> str:
    """The topic of what a keyed stage publishes: a key's row is in the key's partition."""
    return f"{pipeline}.{stage}.table"


def table_of(spec: PipelineSpec, of: str) -> str:
    """Where the learner, or the stage of this pipeline, that is called `of` publishes."""
    learns = any(learner.name == of for learner in spec.learners)
    return table(names.learner(spec.name, of) if learns else spec.name, of)


def generations_of(spec: PipelineSpec, of: str) -> str | None:
    """Where that is said of the learner called `of`; None of one that has no generations."""
    learner = next((each for each in spec.learners if each.name == of), None)
    return generations(names.learner(spec.name, of)) if learner is not None and learner.has_generations else None


def topic_plan(spec: PipelineSpec) -> tuple[TopicRequirement, ...]:
    """All topics that the pipeline needs, in the order of its flow."""
    name, count = spec.name, spec.partitions
    room = spec.limits.merged().max_message_bytes + HEADERS_BYTES
    data = _data(room)
    # Append time is what a query's age is judged by. What outsiders compress, the broker opens: a small message must
    # not become a huge one in our own memory.
    taken = data | {"message.timestamp.type": "LogAppendTime", "compression.type": "uncompressed"}
    roots = [stage.name for stage in spec.stages if not stage.after]
    wanted = [TopicRequirement(ingress(name), count, taken, f"queries, read by {', '.join(roots)}")]
    wanted += [
        TopicRequirement(stage_input(name, stage.name), count, data, f"input of stage {stage.name}")
        for stage in spec.stages
        if stage.after
    ]
    # A dead letter holds a whole message with its headers, and its own.
    letters = _data(room + HEADERS_BYTES, days=7)
    wanted += [
        TopicRequirement(outcomes(name), count, data, "results of the last stages, for the gate"),
        TopicRequirement(egress(name), count, data, "one outcome per query"),
        TopicRequirement(dead(name), count, letters, "poison messages, with the reason"),
        *_state_topics(spec),
    ]
    rows = {**_COMPACT, "max.message.bytes": str(room)}
    wanted += [
        TopicRequirement(table(name, stage.name), count, rows, f"the published state of stage {stage.name}, by key")
        for stage in spec.stages
        if stage.publish
    ]
    if spec.stages[0].has_generations:
        # One partition, whose order decides; all keys differ, so nothing is ever compacted away.
        wanted.append(TopicRequirement(generations(name), 1, _COMPACT, "the current generation of features"))
    plain = {**_COMPACT, "compression.type": "uncompressed"}
    # Replicas write all the time and only their newest word counts; Kafka compacts what is in full segments.
    words = {**plain, "segment.bytes": str(50 << 20)}
    wanted += [
        TopicRequirement(schemas(name), 1, plain, "writers' schemas by fingerprint"),
        TopicRequirement(plan(name), 1, words, "the latest status of each replica"),
        # Claims and what ends them have keys of their own: they stay.
        TopicRequirement(owners(name), 1, _COMPACT, "the owners of the pipeline's processes"),
        TopicRequirement(sizes(name), 1, _COMPACT, "the wanted number of workers of each stage"),
    ]
    return tuple(_kept(topic) for topic in wanted) if spec.places else tuple(wanted)


def _kept(topic: TopicRequirement) -> TopicRequirement:
    """The topic as one that states rest on, unless the loss of a record in it costs nothing that was promised."""
    if topic.name.endswith((".beat", ".plan", ".dead")):
        return topic
    return replace(topic, config={**topic.config, UNCLEAN: "false"})


def _state_topics(spec: PipelineSpec) -> list[TopicRequirement]:
    stages = [stage for stage in spec.stages if stage.replicated]
    if not stages:
        return []
    wanted = []
    for stage in stages:
        # A member that was away for some leases still finds what was tombstoned meanwhile (rule 4).
        lag = max(_LAG_SECONDS, _LAG_LEASES * stage.required_state.lease)
        log = {
            **_COMPACT,
            "min.compaction.lag.ms": str(round(lag * 1_000)),
            "min.cleanable.dirty.ratio": _STATE_DIRTY,
            "segment.bytes": str(_STATE_SEGMENT),
            "max.message.bytes": str(STATE_BYTES),
        }
        name = stage.name
        wanted += [
            TopicRequirement(
                versions(spec.name, name),
                stage.shards,
                log,
                f"versions of stage {name}, by shard",
                # How old a fence is, and so its link in the chain, is known by the broker's clock alone.
                wished={"message.timestamp.type": "LogAppendTime"},
            ),
            TopicRequirement(state(spec.name, name), stage.shards, log, f"states of stage {name}, by shard"),
        ]
    return [
        *wanted,
        # Claims have keys of their own and are never deleted, so no epoch comes back (rule 3).
        TopicRequirement(control(spec.name), 1, {**_COMPACT, "segment.bytes": str(50 << 20)}, "claims to be primary"),
        TopicRequirement(beat(spec.name), 1, _BEATS, "heartbeats of the members of stateful stages"),
    ]


def models_topic() -> TopicRequirement:
    """The table of registered models, which is no pipeline's own; a manifest has some KiB."""
    return TopicRequirement(MODELS, 1, {**_COMPACT, "max.message.bytes": str(STATE_BYTES)}, "registered models")


def mismatches(plan: Sequence[TopicRequirement], actual: Mapping[str, ActualTopic]) -> list[str]:
    """Where `actual` (by topic name) is not as `plan` requires, one line each; empty where all is well."""
    wrong = []
    for topic in plan:
        there = actual.get(topic.name)
        if there is None:
            wrong.append(f"topic {topic.name!r} is missing ({topic.purpose})")
            continue
        if there.partitions != topic.partitions:
            wrong.append(f"topic {topic.name!r} has {there.partitions} partitions, required {topic.partitions}")
        for key, required in topic.config.items():
            found = there.config.get(key)
            if not _suffices(key, found, required):
                wrong.append(
                    f"topic {topic.name!r} has {key} = {_shown(key, found)}, required {_wanted(key, required)}"
                )
    return wrong


def _data(room: int, days: int = 1) -> dict[str, str]:
    return {
        "cleanup.policy": "delete",
        "retention.ms": str(days * _DAY_MS),
        "retention.bytes": str(_UNBOUNDED),  # a size would delete queries that nobody has answered yet
        "max.message.bytes": str(room),
    }


def _suffices(key: str, found: str | None, required: str) -> bool:
    if found is None or found == required:
        return found == required
    if key == "cleanup.policy":
        return set(found.split(",")) == set(required.split(","))
    if key not in AT_LEAST | AT_MOST:
        return False
    try:
        has, needs = _number(found), _number(required)
    except ValueError:
        return False
    return has >= needs if key in AT_LEAST else has <= needs


def _number(text: str) -> float:
    value = float(text)
    return float("inf") if value == _UNBOUNDED else value


def _wanted(key: str, required: str) -> str:
    words = "at least " if key in AT_LEAST else "at most " if key in AT_MOST else ""
    return "no limit (-1)" if required == str(_UNBOUNDED) else words + _shown(key, required)


def _shown(key: str, value: str | None) -> str:
    if value is None:
        return "nothing"
    if key.endswith(".ms") and value.isdigit():
        return f"{value} ({show_duration(int(value) / 1_000)})"
    return value
