"""Who is in consumer groups and has which partitions, asked of the groups' coordinators through aiokafka.

librdkafka's admin client (2.16, its issue 4605) may end the process where the connection to a coordinator breaks while
it is asked: it frees the request, and answers it afterwards.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from aiokafka.client import AIOKafkaClient
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.admin import DescribeGroupsRequest_v1
from aiokafka.protocol.api import Request

from spillway.agents.live.admin import ANSWER_SECONDS
from spillway.lineage.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from spillway.producers.connection import ClientSettings

_T = TypeVar("_T")
_GROUP = 0  # the kind of coordinator
_REQUEST_MS = 2_000  # a node that stands still is given up after this, and another is asked
_RETRY_SECONDS = 0.1
_UUID_PARTS = 5  # between dashes


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group: its instance id, or its client id where it is not static, and what it has of its topic."""

    name: str
    partitions: tuple[int, ...]


class GroupMembers:
    """Asks who is in groups in which nobody reads more than one topic, by one client for as long as that is answered.

    For one thread at a time.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._runner: asyncio.Runner | None = None
        self._client: AIOKafkaClient | None = None

    def ask(self, groups: Sequence[str]) -> Mapping[str, Sequence[GroupMember]]:
        """The members of each group, none where there is no such group.

        A group is left out where its coordinator does not answer within `ANSWER_SECONDS`. Raises `BrokerError` where
        none does, or one refuses.
        """
        self._runner = self._runner or asyncio.Runner()
        try:
            found = self._runner.run(self._ask(groups))
        except KafkaError as error:
            self.close()
            raise BrokerError(
                f"the cluster does not allow to list the members of the groups {', '.join(groups)}: {error!r}; grant "
                "the user in the client settings DESCRIBE on groups"
            ) from error
        except BaseException:
            self.close()
            raise
        told = {group: members for group, members in zip(groups, found, strict=True) if members is not None}
        if groups and not told:
            self.close()
            raise BrokerError(
                f"no broker answered within {ANSWER_SECONDS:g} s who is in the groups {', '.join(groups)}"
            )
        return told

    def close(self) -> None:
        runner, client = self._runner, self._client
        self._runner = self._client = None
        if runner is not None:
            with runner:
                if client is not None:
                    runner.run(client.close())

    async def _ask(self, groups: Sequence[str]) -> list[list[GroupMember] | None]:
        client = self._client
        if client is None:
            client = self._client = AIOKafkaClient(**self._settings.aiokafka(), request_timeout_ms=_REQUEST_MS)
            await _patiently(client.bootstrap)
            if not client.cluster.brokers():
                return [None] * len(groups)
        return await asyncio.gather(*(_patiently(partial(_describe, client, group)) for group in groups))


async def _patiently(question: Callable[[], Awaitable[_T]]) -> _T | None:
    """Ask until there is an answer: by a node that is gone, or coordinates no more; None where the time is over.

    Raises at once what asking again does not change.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(ANSWER_SECONDS):
            while True:
                try:
                    return await question()
                except KafkaError as error:
                    if not error.retriable:
                        raise
                await asyncio.sleep(_RETRY_SECONDS)
    return None


async def _describe(client: AIOKafkaClient, group: str) -> list[GroupMember]:
    coordinator = await client.coordinator_lookup(_GROUP, group)
    answer = await client.send(coordinator, _Describe(group))
    ((error_code, _, _, _, _, members),) = answer.groups
    if error_code:
        raise for_code(error_code)(group)
    return [
        GroupMember(member_id.rsplit("-", _UUID_PARTS)[0], assigned(assignment))
        for member_id, _, _, _, assignment in members
    ]


def assigned(assignment: bytes) -> tuple[int, ...]:
    """Return the partitions in an assignment of Kafka's consumer protocol, of whichever topic."""
    if not assignment:
        return ()  # it has just joined
    topics = ConsumerProtocolMemberAssignment.decode(assignment).assignment
    return tuple(partition for _, partitions in topics for partition in partitions)


class _Describe(Request[DescribeGroupsRequest_v1]):  # type: ignore[misc]
    """One group, in a version whose answer aiokafka (0.14) reads as brokers write it: in its third it does not."""

    API_KEY = DescribeGroupsRequest_v1.API_KEY

    def __init__(self, group: str) -> None:
        self._group = group

    def build(self, request_struct_class: type[DescribeGroupsRequest_v1]) -> DescribeGroupsRequest_v1:
        return request_struct_class([self._group])
