"""What aiokafka does not ask again by itself, while the cluster has no broker to name for a moment.

A cluster whose only broker is fenced, as it starts or after it has stood still for longer than its session, answers
requests for metadata, but names no broker. A client that starts just then goes on without: it ends where it looks for
its group's coordinator, and a leader that knows no partitions deals none, to nobody, until the next regular refresh.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiokafka.errors import GroupCoordinatorNotAvailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aiokafka import AIOKafkaClient


def look_up_patiently(client: AIOKafkaClient) -> None:
    """Have a coordinator's lookup fail, while no broker is known, in the way after which aiokafka tries again."""
    original = client.coordinator_lookup

    async def lookup(kind: Any, key: str) -> Any:
        if client.get_random_node() is None:
            raise GroupCoordinatorNotAvailableError
        return await original(kind, key)

    client.coordinator_lookup = lookup


async def keep_known(client: AIOKafkaClient, topics: Callable[[], Iterable[str]], period: float = 1.0) -> None:
    """Ask for metadata again each `period` seconds while no partition of a topic is known; ends when cancelled.

    Once they are, aiokafka notices that the topic has changed, and the group deals them.
    """
    while True:
        if not all(client.cluster.partitions_for_topic(topic) for topic in topics()):
            await client.force_metadata_update()
        await asyncio.sleep(period)
