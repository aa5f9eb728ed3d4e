"""The Faust application of one stage replica: one agent on one topic, nothing of Faust's that a stage does not use."""

from __future__ import annotations

import contextlib
import tempfile
from typing import TYPE_CHECKING, Any

import faust
from faust.app.base import BootStrategy
from faust.tables import TableManager
from mode.supervisors import CrashingSupervisor

from spillway.agents.live.consumer.transport import StageTransport
from spillway.agents.live.groups import Membership
from spillway.lineage.ports import Input
from spillway.producers.connection import ClientSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spillway.agents.live.consumer.transport import StageConsumer
    from spillway.lineage.ports import Bounds, Commit, Owner


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


class FaustInput(Input):
    """The input of a stage that is a Faust agent."""

    def __init__(self, app: StageApp) -> None:
        self._app = app

    async def commit(self, offsets: Mapping[int, Commit]) -> bool:
        return await self._app.stage_consumer.reader.commit(offsets)

    async def positions(self, partitions: Iterable[int]) -> dict[int, Commit]:
        return await self._app.stage_consumer.reader.committed(partitions)

    async def bounds(self, partitions: Iterable[int]) -> dict[int, Bounds]:
        return await self._app.stage_consumer.reader.bounds(partitions)

    async def close(self, *, leave: bool) -> None:
        with contextlib.suppress(AttributeError):  # of an app that was never started
            self._app.stage_consumer.reader.leave_on_stop = leave
        await self._app.stop()


def build(topic: str, membership: Membership, owner: Owner | None, commit_interval: float) -> StageApp:
    """Build the app whose one agent hands the records of `topic` to the owner, one list after another.

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
    channel = app.topic(topic, key_serializer="raw", value_serializer="raw")

    @app.agent(channel, name=f"stage:{topic}")  # type: ignore[untyped-decorator]
    async def stage(stream: Any) -> None:
        async for event in stream.noack().events():
            await app.stage_consumer.serve(event.value)

    return app


def rehearse(topic: str) -> None:
    """Build an app for nobody and drop it: what Faust imports and looks up for its first app, in .1 s, is then done."""
    nobody = Membership(group="rehearsal", instance="rehearsal.0", settings=ClientSettings(bootstrap="nobody:1"))
    build(topic, nobody, None, 1.0)
