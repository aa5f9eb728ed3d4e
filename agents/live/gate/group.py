"""The gate's membership in its consumer group: static, cooperative, and left in an orderly way.

Static, so that a gate that is restarted within its session gets its partitions back at once and nobody else has to
read their memory. That has a price: neither librdkafka nor aiokafka tells the broker when a static member leaves for
good, and its partitions would lie idle for a whole session. So `leave` says it in their stead.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer

from agents.live.groups import group_id, instance_id
from lineage.metric_names import GATE

if TYPE_CHECKING:
    from producers.connection import ClientSettings

log = logging.getLogger(__name__)

SESSION_MS = 10_000
_HEARTBEAT_MS = 500  # how soon a member hears of a rebalance
_LEAVE_SECONDS = 3.0


def member_settings(settings: ClientSettings, pipeline: str, replica: int) -> dict[str, Any]:
    """How a gate takes part in its group; it commits nothing by itself."""
    return {
        **settings.confluent(),
        "group.id": group_id(pipeline, GATE),
        "group.instance.id": instance_id(pipeline, GATE, replica),
        "client.id": instance_id(pipeline, GATE, replica),
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": _HEARTBEAT_MS,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",  # each partition is assigned with where it begins
        "isolation.level": "read_committed",  # also makes it wait for offsets that a transaction is moving
        "fetch.wait.max.ms": 100,
        "fetch.queue.backoff.ms": 10,
        "queued.min.messages": 2_000,
        "queued.max.messages.kbytes": 16_384,
    }


def member(settings: ClientSettings, pipeline: str, replica: int) -> Consumer:
    return Consumer(member_settings(settings, pipeline, replica), logger=log)


def leave(settings: ClientSettings, pipeline: str, member_id: str) -> None:
    """Tell the broker that a static member, whose consumer is closed, will not come back.

    Where that fails, the partitions move on when the session ends, so it is not worth more than a log line.
    """
    try:
        asyncio.run(asyncio.wait_for(_leave(settings.aiokafka(), group_id(pipeline, GATE), member_id), _LEAVE_SECONDS))
    except (TimeoutError, OSError) as error:
        log.warning("could not leave the group %s: %s", group_id(pipeline, GATE), error)


async def _leave(connection: dict[str, Any], group: str, member_id: str) -> None:
    # Imported here, as aiokafka is needed for this one request at the very end.
    from aiokafka.client import AIOKafkaClient  # noqa: PLC0415
    from aiokafka.errors import KafkaError as AIOKafkaError  # noqa: PLC0415
    from aiokafka.protocol.group import LeaveGroupRequest  # noqa: PLC0415

    client = AIOKafkaClient(**connection)
    try:
        await client.bootstrap()
        coordinator = await client.coordinator_lookup(0, group)
        answer = await client.send(coordinator, LeaveGroupRequest(group, member_id))
        log.info("left the group %s (answer %s)", group, answer.error_code)
    except AIOKafkaError as error:
        raise OSError(str(error)) from error
    finally:
        await client.close()
