"""The Faust application of one stage replica: one agent on one topic, nothing of Faust's that a stage does not use."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any

import faust
from faust.app.base import BootStrategy
from faust.tables import TableManager
from mode.supervisors import CrashingSupervisor

from spillway.agents.live.consumer.transport import StageTransport
from spillway.agents.live.groups import Membership
from spillway.producers.connection import ClientSettings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from spillway.agents.live.consumer.transport import Chunk, Owner, StageConsumer
    from spillway.lineage.ports import Bounds, Commit


class _ConsumerOnly(BootStrategy):  # type: ignore[misc]
    """Output goes through a producer of our own, so Faust's stays off."""

    enable_kafka_producer = False
    enable_web = False


class _NoTables(TableManager):  # type: ignore[misc]
    """Faust's tables, of which there are none: it would wait a second for somebody to declare some.

    Its recovery stays: at every rebalance that is what seeks the partitions to their committed offsets.
    """

    async def on_start(self) -> None:
        await self._update_channels()
        await self.recovery.start()


class StageApp(faust.App):  # type: ignore[misc]
    """A Faust app that only consumes."""

    BootStrategy = _ConsumerOnly

    def _create_directories(self) -> None:
        """Make none: there are no tables to keep."""

    @property
    def stage_consumer(self) -> StageConsumer:
        return self.consumer  # type: ignore[no-any-return]

    async def committed(self, partitions: Iterable[int]) -> dict[int, Commit]:
        """Read the group's committed offsets with their notes; a partition without one is missing."""
        return await self.stage_consumer.reader.committed(partitions)

    async def input_bounds(self, partitions: Iterable[int]) -> dict[int, Bounds]:
        """Read where the log of each partition of the stage's topic begins and ends."""
        return await self.stage_consumer.reader.bounds(partitions)


def build(
    topic: str,
    membership: Membership,
    owner: Owner | None,
    take: Callable[[Chunk], Awaitable[None]],
    commit_interval: float,
) -> StageApp:
    """Build the app whose one agent hands each chunk of `topic` to `take`, one after another.

    `owner` is None for an app that is never started.
    """
    app = StageApp(
        membership.group,
        broker="kafka://",
        store="memory://",
        datadir=tempfile.gettempdir() + "/spillway-faust",  # never written: there are no tables
        web_enabled=False,
        topic_disable_leader=True,
        topic_allow_declare=False,
        table_standby_replicas=0,
        TableManager=_NoTables,
        agent_supervisor=CrashingSupervisor,
        key_serializer="raw",
        value_serializer="raw",
        broker_commit_interval=commit_interval,
        broker_commit_livelock_soft_timeout=24 * 3600.0,
        stream_wait_empty=False,
        stream_recovery_delay=0.0,
        stream_buffer_maxsize=4,
        broker_session_timeout=membership.session,
        broker_heartbeat_interval=membership.heartbeat,
        reply_create_topic=False,
        loghandlers=[],
        logging_config=None,
    )
    app.transport = StageTransport(app.conf.broker_consumer, app, membership=membership, owner=owner)
    if owner is not None:
        owner.inputs.bounds = app.input_bounds
    channel = app.topic(topic, key_serializer="raw", value_serializer="raw")

    @app.agent(channel, name=f"stage:{topic}")  # type: ignore[untyped-decorator]
    async def stage(stream: Any) -> None:
        async for event in stream.noack().events():
            app.stage_consumer.picked_up(event.value)  # the next chunk may come while this one is worked on
            await take(event.value)

    return app


def rehearse(topic: str) -> None:
    """Build an app for nobody and drop it: what Faust imports and looks up for its first app, in .1 s, is then done."""

    async def nothing(_chunk: Chunk) -> None: ...

    build(
        topic,
        Membership(group="rehearsal", instance="rehearsal.0", settings=ClientSettings(bootstrap="nobody:1")),
        None,
        nothing,
        1.0,
    )
