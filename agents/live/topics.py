"""Topics on a live cluster: what the plan asks for is created, and what is there is checked against the plan.

A topic that exists with other settings than the plan's is refused, never altered: it may belong to somebody, or hold
data that the change would lose (more partitions move keys, another cleanup policy deletes records).
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from spillway.agents.live.admin import Admin
from spillway.agents.live.spans import offsets
from spillway.lineage.errors import BrokerError, TopicError, UsageError
from spillway.producers.cluster import noting, unreachable
from spillway.topology.topics import ActualTopic, TopicRequirement, durability, mismatches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from spillway.producers.connection import ClientSettings

log = logging.getLogger(__name__)

_CLUSTER_DEFAULT = -1  # let the cluster's default.replication.factor decide
_REQUEST_SECONDS = 10.0
_POLL_SECONDS = 0.05
_FIRST_SECONDS = 1.0  # of the first question: nobody is to wait in silence
_UNKNOWN = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})  # noqa: SLF001 - the local code


def ensure(
    settings: ClientSettings,
    plan: Sequence[TopicRequirement],
    *,
    timeout: float = 30.0,
    say: Callable[[str], None] = log.info,
    stopping: Callable[[], bool] = bool,
) -> tuple[str, ...]:
    """Create the topics of `plan` that are missing, wait until all are usable, and check every one; returns the new.

    `say` is told what durable means on this cluster, where states rest on the topics, and at once where the cluster
    does not answer. `stopping`: whether to wait no longer for that.
    Safe to run from several processes at once: whoever comes second finds the topic there. Raises `BrokerError` if
    the cluster cannot be reached within `timeout` seconds, and `TopicError` naming topic, key, actual and required
    value where the cluster has a topic otherwise than the plan, or refuses to create one.
    """
    # What librdkafka would print of failed connections is said by the errors raised here.
    trouble: list[KafkaError] = []
    admin = AdminClient({**settings.confluent(), "log_level": 2, "error_cb": noting(trouble)}, logger=log)
    deadline = time.monotonic() + timeout
    there = _present(admin, settings, deadline, trouble, say, stopping)
    missing = [topic for topic in plan if topic.name not in there]
    gap = _gap(settings, plan, missing)
    created = _create(admin, missing, settings)
    _await_leaders(admin, plan, settings, deadline)
    found = _described(admin, settings, [topic.name for topic in plan], deadline)
    wrong = mismatches(plan, found)
    if wrong:
        fix = (
            "correct them, or delete all that the pipeline has, with 'spillway broker topics delete', or run it under "
            "another name"
        )
        raise TopicError(f"topics on {settings.bootstrap} do not match the pipeline ({fix}):\n  " + "\n  ".join(wrong))
    for told in (gap, durability(plan, found)):
        if told is not None:
            say(told)
    return created


def _gap(settings: ClientSettings, plan: Sequence[TopicRequirement], missing: Sequence[TopicRequirement]) -> str | None:
    """What to tell the operator where some topics of queries are missing, and others were written to by now."""
    gone = [topic.name for topic in missing if topic.config["cleanup.policy"] == "delete"]
    kept = [topic for topic in plan if topic not in missing and topic.config["cleanup.policy"] == "delete"]
    if not gone or not any(written(settings, topic.name, topic.partitions) for topic in kept):
        return None
    return (
        f"warning: the pipeline was served before, and has no {', '.join(gone)} now. Unless that is new in its file, "
        "queries will be lost: offsets begin anew in it, and later stages and the gate take them for done. Then stop "
        "the pipeline, delete its topics ('spillway broker topics delete'), and serve it again"
    )


def actual(admin: AdminClient, settings: ClientSettings, names: Iterable[str]) -> dict[str, ActualTopic]:
    """What the cluster has of these topics: partitions, replicas and effective settings; absent ones are left out."""
    listed = _listed(admin, settings, _REQUEST_SECONDS)
    there = {name: listed[name].partitions for name in names if _usable(listed.get(name))}
    if not there:
        return {}
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in there]
    try:
        described = admin.describe_configs(resources, request_timeout=_REQUEST_SECONDS)
        configs = {resource.name: future.result() for resource, future in described.items()}
    except KafkaException as error:
        raise _broker_error(settings, "cannot read the topics' settings", error) from error
    return {
        name: ActualTopic(
            len(partitions),
            {key: entry.value for key, entry in configs[name].items()},
            min((len(partition.replicas) for partition in partitions.values()), default=0),
        )
        for name, partitions in there.items()
    }


def _described(
    admin: AdminClient, settings: ClientSettings, names: Sequence[str], deadline: float
) -> dict[str, ActualTopic]:
    """What the cluster has of topics that are there: a broker of several may be the last to hear of a new one."""
    while True:
        try:
            found = actual(admin, settings, names)
            missing = len(found) < len(names)
        except BrokerError as error:
            unknown = isinstance(error.__cause__, KafkaException) and error.__cause__.args[0].code() in _UNKNOWN
            if not unknown or time.monotonic() >= deadline:
                raise
            missing = True
        if not missing or time.monotonic() >= deadline:
            return found
        time.sleep(_POLL_SECONDS)


def _listed(admin: AdminClient, settings: ClientSettings, seconds: float) -> dict[str, Any]:
    try:
        return dict(admin.list_topics(timeout=seconds).topics)
    except KafkaException as error:
        raise _broker_error(settings, "cannot reach Kafka", error) from error


def present(settings: ClientSettings, names: Iterable[str]) -> list[str]:
    """Those of the topics that the cluster has. Raises BrokerError."""
    listed = _listed(AdminClient(settings.confluent(), logger=log), settings, _REQUEST_SECONDS)
    return [name for name in names if _usable(listed.get(name))]


def described(settings: ClientSettings, names: Iterable[str]) -> dict[str, ActualTopic]:
    """Those of the topics that the cluster has, as they are. Raises BrokerError."""
    return actual(AdminClient(settings.confluent(), logger=log), settings, names)


def written(settings: ClientSettings, topic: str, partitions: int) -> bool:
    """Whether anything was ever written to a topic. Raises BrokerError."""
    admin = Admin(settings.confluent())
    either = IsolationLevel.READ_UNCOMMITTED
    return any(offsets(admin, topic, range(partitions), OffsetSpec.latest(), either, _REQUEST_SECONDS).values())


def delete(settings: ClientSettings, names: Sequence[str], groups: Sequence[str]) -> None:
    """Delete topics, and the consumer groups first, whose offsets would mean nothing to new ones.

    Raises UsageError where a group has members: the pipeline is served then. Raises BrokerError.
    """
    admin = AdminClient(settings.confluent(), logger=log)
    try:
        for group, future in admin.delete_consumer_groups(list(groups), request_timeout=_REQUEST_SECONDS).items():
            _deleted(group, future)
        for future in admin.delete_topics(list(names), request_timeout=_REQUEST_SECONDS).values():
            future.result()
    except KafkaException as error:
        raise _broker_error(settings, f"cannot delete {names[0]} and others", error) from error


def _deleted(group: str, future: Any) -> None:
    try:
        future.result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.NON_EMPTY_GROUP:
            raise UsageError(
                f"the consumer group {group} has members: stop the processes that serve the pipeline first"
            ) from error
        if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
            raise


def _present(
    admin: AdminClient,
    settings: ClientSettings,
    deadline: float,
    trouble: Sequence[KafkaError],
    say: Callable[[str], None],
    stopping: Callable[[], bool],
) -> set[str]:
    """The names on the cluster, asked until it answers or `deadline` passes: a broker may be just starting."""
    told = False
    while True:
        left = deadline - time.monotonic()
        try:
            listed = admin.list_topics(timeout=max(_FIRST_SECONDS, min(left, 5.0) if told else _FIRST_SECONDS)).topics
            return {name for name, topic in listed.items() if _usable(topic)}
        except KafkaException as error:
            admin.poll(_POLL_SECONDS)  # fills `trouble`
            unreached = unreachable(settings.bootstrap, (trouble[0] if trouble else error.args[0]).str())
            if left <= 0 or stopping():
                raise unreached from error
            if not told:
                say(f"{unreached}; trying for {left:.0f} s more")
            told = True


def _create(admin: AdminClient, missing: Sequence[TopicRequirement], settings: ClientSettings) -> tuple[str, ...]:
    if not missing:
        return ()
    wanted = [
        NewTopic(topic.name, topic.partitions, _CLUSTER_DEFAULT, config={**topic.config, **topic.wished})
        for topic in missing
    ]
    created = []
    for name, future in admin.create_topics(wanted, request_timeout=_REQUEST_SECONDS).items():
        try:
            future.result()
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.TOPIC_ALREADY_EXISTS:  # another process was faster
                continue
            if code in {KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN}:  # noqa: SLF001
                raise _broker_error(settings, f"cannot create topic {name!r}", error) from error
            raise TopicError(f"{settings.bootstrap} refused to create topic {name!r}: {error.args[0].str()}") from error
        created.append(name)
    return tuple(created)


def _await_leaders(
    admin: AdminClient, plan: Sequence[TopicRequirement], settings: ClientSettings, deadline: float
) -> None:
    """Wait until every partition of every topic has a leader: a new topic is not usable at once on every broker."""
    while True:
        listed = _listed(admin, settings, _REQUEST_SECONDS)
        waiting = [topic.name for topic in plan if not _led(listed.get(topic.name))]
        if not waiting:
            return
        if time.monotonic() >= deadline:
            raise TopicError(
                f"topics on {settings.bootstrap} have partitions without a leader: {', '.join(waiting)}; "
                "is a broker of the cluster down?"
            )
        time.sleep(_POLL_SECONDS)


def _usable(topic: Any) -> bool:
    return topic is not None and topic.error is None


def _led(topic: Any) -> bool:
    return _usable(topic) and bool(topic.partitions) and all(p.leader >= 0 for p in topic.partitions.values())


def _broker_error(settings: ClientSettings, what: str, error: KafkaException) -> BrokerError:
    return BrokerError(
        f"{what} at {settings.bootstrap}: {error.args[0].str()}; start a broker with 'spillway broker start', "
        "or name another with --bootstrap or SPILLWAY_BOOTSTRAP (and its client settings file)"
    )
