"""Hanging up on a broker that stands still: connected, but without a byte of an answer.

aiokafka waits 40 s for each answer and asks nobody else meanwhile, while the cluster has long elected other leaders. An
answer that comes slowly is waited for as long as bytes of it arrive. What the broker holds back on purpose, until all
members of a group have come, is waited for as aiokafka does.
"""
# ruff: noqa: SLF001 - aiokafka has no public way to do what this replaces; its version is pinned

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from aiokafka.conn import CloseReason
from aiokafka.errors import RequestTimedOutError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiokafka import AIOKafkaClient
    from aiokafka.conn import AIOKafkaConnection

log = logging.getLogger(__name__)

SILENT_SECONDS: Final = 6.0  # a broker may take 5 s to say that too few replicas have taken an offset
_HELD_BACK: Final = ("JoinGroup", "SyncGroup")


def hang_up_on_silence(client: AIOKafkaClient, seconds: float = SILENT_SECONDS) -> None:
    """Have every connection of the client be given up after `seconds` in which an answer was due and nothing came."""
    original = client._get_conn

    async def connection(node: Any, **options: Any) -> Any:
        try:
            made = await asyncio.wait_for(original(node, **options), seconds)
        except TimeoutError:
            log.warning("node %s does not answer: another is asked where the partitions are", node)
            client.force_metadata_update()
            return None
        if made is not None and not getattr(made.send, "bounded", False):
            made.send = _bounded(made, made.send, seconds)
        return made

    client._get_conn = connection


def _bounded(
    connection: AIOKafkaConnection, original: Callable[..., Awaitable[Any]], seconds: float
) -> Callable[..., Awaitable[Any]]:
    async def answer(request: Any, waiting: asyncio.Future[Any]) -> Any:
        heard = _heard(connection)
        try:
            while not await _came(waiting, seconds):
                before, heard = heard, _heard(connection)
                if heard == before:
                    log.warning("%s:%s is silent: hanging up", connection.host, connection.port)
                    connection.close(reason=CloseReason.CONNECTION_TIMEOUT)
                    raise RequestTimedOutError(f"{type(request).__name__}: nothing came for {seconds:g} s")
        finally:
            if not waiting.done():
                waiting.cancel()
        return waiting.result()

    def send(request: Any, expect_response: bool = True) -> Awaitable[Any]:  # noqa: FBT001, FBT002 - aiokafka's
        sent = original(request, expect_response=expect_response)
        if not expect_response or type(request).__name__.startswith(_HELD_BACK):
            return sent
        return answer(request, asyncio.ensure_future(sent))

    send.bounded = True  # type: ignore[attr-defined]
    return send


async def _came(waiting: asyncio.Future[Any], seconds: float) -> bool:
    return bool((await asyncio.wait({waiting}, timeout=seconds))[0])


def _heard(connection: AIOKafkaConnection) -> tuple[Any, int]:
    """What changes with each byte that comes: the answer that is due next, and how much of it is there."""
    due = connection._requests[0][0] if connection._requests else None
    return due, len(connection._reader._buffer) if connection._reader is not None else 0
