"""A member of a stateful shard, as a process: load, read the logs, join its group, take part, hand over, leave.

The model is loaded, and has made a first state, before anything is joined: an optimizer's first import costs seconds.
At SIGTERM a primary takes nothing more, waits until all that it took is durable, has a backup take over where there is
one, and leaves.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from spillway.agents.live.consumer.app import FaustInput, StageApp, build
from spillway.agents.live.groups import group_id, member_label, member_of
from spillway.agents.live.loop import run_loop
from spillway.agents.live.registry import Registration, turns
from spillway.agents.live.stage import process as stage_process
from spillway.agents.live.stage.startup import Serving, ending, look_through_rarely, nothing_taken
from spillway.agents.live.stateful.build import Built
from spillway.agents.models.declared import load_declared
from spillway.agents.models.execution import Runner
from spillway.agents.models.loading import limit_torch_threads
from spillway.agents.models.stateful import Machine, first_state
from spillway.agents.workers.forks import isolate_children
from spillway.checkpoint.promotion import Role
from spillway.lineage.errors import ModelError, SpillwayError
from spillway.producers.kafka.log import KafkaLog
from spillway.producers.schema_log import SchemaLog

if TYPE_CHECKING:
    from spillway.agents.live.stage.config import StageProcessConfig
    from spillway.agents.models.stateful import StatefulModel

log = logging.getLogger(__name__)


def run(config: StageProcessConfig) -> int:
    """Serve until SIGTERM or SIGINT; return the process's exit code: 0 drained, 1 failed (said on stderr)."""
    if not config.spec.replicated:  # `replication: none`: an ordinary stage whose model keeps its state for itself
        return stage_process.run(config)
    signal.signal(signal.SIGTERM, nothing_taken)
    isolate_children()
    try:
        runner = Runner("model")
        model = runner.call(partial(load, config))
        schemas = SchemaLog(config.settings, config.pipeline.spec.name)
        schemas.open()
        with KafkaLog(config.settings) as kafka:
            return ending(run_loop(MemberProcess(config, runner, model, schemas, kafka).serve()))
    except SpillwayError as error:
        label = member_label(config.spec, config.replica)
        print(f"spillway: {config.pipeline.spec.name}/{label}: {error}", file=sys.stderr)
        return ending(error.exit_code)


def load(config: StageProcessConfig) -> StatefulModel:
    """Load the model, and have it make a state. Raises ModelError that names stage, model and cause."""
    spec = config.spec
    if spec.model is None or spec.state is None:
        raise ModelError(f"stage {spec.name!r}: a stage with a state needs a model, and 'state' to say what it keeps")
    where = (spec.name, spec.model, spec.arguments, spec.workers.device, spec.state.kind)
    model = load_declared(*where, publishes=spec.publish)
    limit_torch_threads(config.torch_threads)
    machine = Machine(f"stage {spec.name!r}", model)
    if machine.kind == "keyed":
        first_state(model)  # whatever it imports is imported now
    return model


def member_name(config: StageProcessConfig) -> str:
    """The name that claims and beats have: of the member's place, and of this process alone."""
    if config.member_name:
        return config.member_name
    place = group_id(config.pipeline.spec.name, member_label(config.spec, config.replica))
    return f"{place}@{time.time_ns() // 1_000_000}"


class MemberProcess(Serving):
    """The parts of a member's process, and the order in which they start and stop."""

    def __init__(
        self, config: StageProcessConfig, runner: Runner, model: StatefulModel, schemas: SchemaLog, kafka: KafkaLog
    ) -> None:
        """`runner`: the thread that the model was made on. `kafka`: what follows all that the process does."""
        super().__init__(config)
        self._runner = runner
        self._model = model
        self._schemas = schemas
        self._kafka = kafka
        self._pipeline = config.pipeline.spec.name
        self._label = member_label(config.spec, config.replica)
        self._shard, _ = member_of(config.spec, config.replica)

    async def serve(self) -> int:
        """Serve until told to stop. Raises SpillwayError where the process has to end without draining."""
        loop = asyncio.get_running_loop()
        self._hear_signals()
        name = member_name(self._config)
        built = Built(self._config, name, self._runner, self._model, self._schemas, self._kafka)
        spec, group = self._config.spec, group_id(self._pipeline, self._label)
        member = self._membership(group, group, lambda partition: spec.shard_of(partition) == self._shard)
        app = build(built.topic, member, built.input, self._config.commit_interval)
        built.input.inputs.bounds = FaustInput(app).bounds
        registration = Registration(self._config.run_dir, built.metrics, self._config.metrics, turns(loop))
        look_through_rarely()
        drained = False
        starting = loop.create_task(self._start(app, built))
        try:

            def began() -> None:
                registration.mark_ready()
                log.info("%s: joins its shard", self._label)

            try:
                await self._until_stopped(app, starting, built.failed, began)
            finally:
                starting.cancel()
            drained = await self._drain(app, built)
        finally:
            await self._end(app, built)
        registration.close()
        return 0 if drained else 1

    async def _start(self, app: StageApp, built: Built) -> None:
        built.start()
        await built.member.read()
        await built.prepare()
        await app.start()
        await built.input.started()
        built.member.turns.begin()

    async def _drain(self, app: StageApp, built: Built) -> bool:
        drained = await self._finish(
            app, built.failed, stop_taking=built.member.stop_taking, settled=lambda: built.settled
        )
        if not drained:
            text = "stopped with work left; it goes to the shard's next primary"
            print(f"spillway: {self._pipeline}/{self._label}: {text}", file=sys.stderr)
        roles = built.member.roles
        if built.member.turns.hand_over(f"{roles.name} stops"):
            within = 2 * roles.lease.seconds
            if not await built.member.wait_until(lambda: roles.role is not Role.PRIMARY, within):
                log.warning("%s: no backup took over within %g s", self._label, within)
        return drained

    async def _end(self, app: StageApp, built: Built) -> None:
        self._bound()
        built.end_reign()
        await self._end_app(app)
        await built.close()
