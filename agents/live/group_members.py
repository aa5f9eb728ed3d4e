"""Who is in consumer groups and has which partitions, asked of the groups' coordinators through aiokafka.

librdkafka's admin client (2.16, its issue 4605) may end the process where the connection to a coordinator breaks while
it is asked: it frees the request, and answers it afterwards.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiokafka.client import AIOKafkaClient
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.admin import DescribeGroupsRequest_v1
from aiokafka.protocol.api import Request

from agents.live.admin import ANSWER_SECONDS
from lineage.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from producers.connection import ClientSettings

_GROUP = 0  # the kind of coordinator
_REQUEST_MS = 2_000  # a node that stands still is given up after this, and another is asked
_RETRY_SECONDS = 0.1
_UUID_PARTS = 5  # between dashes


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group: its instance id, or its client id where it is not static, and what it has of its topic."""

    name: str
    partitions: tuple[int, ...]


def members_of(settings: ClientSettings, groups: Sequence[str]) -> Mapping[str, Sequence[GroupMember]]:
    """The members of each group, in which nobody reads more than one topic; none where there is no such group.

    Raises `BrokerError` where a coordinator does not answer within `ANSWER_SECONDS`.
    """
    asking = asyncio.wait_for(_ask(settings.aiokafka(), groups), ANSWER_SECONDS)
    try:
        return asyncio.run(asking)
    except (TimeoutError, OSError) as error:
        raise BrokerError(
            f"nobody says within {ANSWER_SECONDS:g} s who is in the groups {', '.join(groups)}"
        ) from error


async def _ask(connection: dict[str, Any], groups: Sequence[str]) -> dict[str, list[GroupMember]]:
    client = AIOKafkaClient(**connection, request_timeout_ms=_REQUEST_MS)
    try:
        await _patiently(client.bootstrap)
        return {group: await _patiently(lambda each=group: _describe(client, each)) for group in groups}
    finally:
        await client.close()


async def _patiently(question: Any) -> Any:
    """Ask until there is an answer, for whoever bounds the time: by a node that is gone, or coordinates no more."""
    while True:
        try:
            return await question()
        except KafkaError:
            await asyncio.sleep(_RETRY_SECONDS)


async def _describe(client: AIOKafkaClient, group: str) -> list[GroupMember]:
    coordinator = await client.coordinator_lookup(_GROUP, group)
    answer = await client.send(coordinator, _Describe(group))
    ((error_code, _, _, _, _, members),) = answer.groups
    if error_code:
        raise for_code(error_code)(group)
    return [GroupMember(_name(member_id), _partitions(assignment)) for member_id, _, _, _, assignment in members]


def _name(member_id: str) -> str:
    return member_id.rsplit("-", _UUID_PARTS)[0]


def _partitions(assignment: bytes) -> tuple[int, ...]:
    if not assignment:
        return ()  # it has just joined
    assigned = ConsumerProtocolMemberAssignment.decode(assignment).assignment
    return tuple(partition for _, partitions in assigned for partition in partitions)


class _Describe(Request[DescribeGroupsRequest_v1]):  # type: ignore[misc]
    """One group, in a version whose answer aiokafka (0.14) reads as brokers write it: in its third it does not."""

    API_KEY = DescribeGroupsRequest_v1.API_KEY

    def __init__(self, group: str) -> None:
        self._group = group

    def build(self, request_struct_class: type[DescribeGroupsRequest_v1]) -> DescribeGroupsRequest_v1:
        return request_struct_class([self._group])
