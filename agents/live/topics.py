"""Topics on a live cluster: what the plan asks for is created, and what is there is checked against the plan.

A topic that exists with other settings than the plan's is refused, never altered: it may belong to somebody, or hold
data that the change would lose (more partitions move keys, another cleanup policy deletes records).
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from lineage.errors import BrokerError, TopicError
from topology.durable import meaning
from topology.topics import ActualTopic, TopicRequirement, mismatches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from producers.connection import ClientSettings

log = logging.getLogger(__name__)

_CLUSTER_DEFAULT = -1  # let the cluster's default.replication.factor decide
_REQUEST_SECONDS = 10.0
_POLL_SECONDS = 0.05


def ensure(
    settings: ClientSettings,
    plan: Sequence[TopicRequirement],
    *,
    timeout: float = 30.0,
    say: Callable[[str], None] = log.info,
) -> tuple[str, ...]:
    """Create the topics of `plan` that are missing, wait until all are usable, and check every one; returns the new.

    `say` is told what durable means on this cluster, where states rest on the topics.
    Safe to run from several processes at once: whoever comes second finds the topic there. Raises `BrokerError` if
    the cluster cannot be reached within `timeout` seconds, and `TopicError` naming topic, key, actual and required
    value where the cluster has a topic otherwise than the plan, or refuses to create one.
    """
    # What librdkafka would print of failed connections is said by the errors raised here.
    admin = AdminClient({**settings.confluent(), "log_level": 2}, logger=log)
    deadline = time.monotonic() + timeout
    present = _present(admin, settings, deadline)
    created = _create(admin, [topic for topic in plan if topic.name not in present], settings)
    _await_leaders(admin, plan, settings, deadline)
    found = actual(admin, settings, [topic.name for topic in plan])
    wrong = mismatches(plan, found)
    if wrong:
        fix = "delete or correct them, or run the pipeline under another name"
        raise TopicError(
            f"topics on {settings.bootstrap} are not as the pipeline requires ({fix}):\n  " + "\n  ".join(wrong)
        )
    durable = meaning(plan, found)
    if durable is not None:
        say(durable)
    return created


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


def _listed(admin: AdminClient, settings: ClientSettings, seconds: float) -> dict[str, Any]:
    try:
        return dict(admin.list_topics(timeout=seconds).topics)
    except KafkaException as error:
        raise _broker_error(settings, "cannot reach Kafka", error) from error


def _present(admin: AdminClient, settings: ClientSettings, deadline: float) -> set[str]:
    """The names on the cluster, asked until it answers or `deadline` passes: a broker may be just starting."""
    while True:
        left = deadline - time.monotonic()
        try:
            return {
                name for name, topic in _listed(admin, settings, max(1.0, min(left, 5.0))).items() if _usable(topic)
            }
        except BrokerError:
            if time.monotonic() >= deadline:
                raise


def _create(admin: AdminClient, missing: Sequence[TopicRequirement], settings: ClientSettings) -> tuple[str, ...]:
    if not missing:
        return ()
    wanted = [NewTopic(topic.name, topic.partitions, _CLUSTER_DEFAULT, config=dict(topic.config)) for topic in missing]
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
