"""One replica of one stage, as a process: load, join the group, serve, drain, leave.

A standby does the first of these, then waits to be told which replica it is (`spillway.agents.live.stage.standby`).
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from spillway.agents.core.pool import Pool
from spillway.agents.live.clock import Clock, since_boot
from spillway.agents.live.consumer.app import FaustInput, StageApp, build, rehearse
from spillway.agents.live.groups import group_id, instance_id
from spillway.agents.live.loop import run_loop
from spillway.agents.live.output import Output
from spillway.agents.live.registry import Registration, turns
from spillway.agents.live.sizes import Sizes
from spillway.agents.live.spans import KafkaSpans
from spillway.agents.live.stage.build import (
    build_guard,
    build_work,
    known_of,
    known_of_hello,
    load_copies,
    load_copy,
    note_sizes,
    pause_of,
)
from spillway.agents.live.stage.config import StageProcessConfig
from spillway.agents.live.stage.crash_watch import folder_of
from spillway.agents.live.stage.crew import Crew, local_crews
from spillway.agents.live.stage.dispatch_pool import beside_of
from spillway.agents.live.stage.driver import DriverParts, build_driver
from spillway.agents.live.stage.lookups import Lookups
from spillway.agents.live.stage.members import Members
from spillway.agents.live.stage.redundancy_workers import Extras
from spillway.agents.live.stage.renewing import Renewing, registered
from spillway.agents.live.stage.scaling import Scaling, counts
from spillway.agents.live.stage.standby import wait_to_take
from spillway.agents.live.stage.startup import (
    POLL,
    Serving,
    ending,
    look_through_rarely,
    nothing_taken,
    transacted,
)
from spillway.agents.live.stage.threads import Threads
from spillway.agents.live.stage.variant_metrics import VariantMetrics
from spillway.agents.live.stage.variants import VariantCrews
from spillway.agents.metrics import StageMetrics, marks_histogram
from spillway.agents.run.log_reader import LogsFeed
from spillway.agents.run.planner import without_words
from spillway.agents.workers.forks import isolate_children
from spillway.agents.workers.identity import model_hash
from spillway.agents.workers.links import Links
from spillway.agents.workers.tls import context_of
from spillway.lineage.errors import SpillwayError
from spillway.lineage.values.codec import Decoder
from spillway.producers.kafka.log import ALONE, KafkaLog
from spillway.producers.schema_log import SchemaLog
from spillway.topology import topics
from spillway.topology.ensembles import record_key
from spillway.topology.names import host_and_port
from spillway.topology.sizes import key_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.agents.core.laned_stage import LanedCore
    from spillway.agents.core.policy import StageFacts
    from spillway.agents.live.stage.batch_work import BatchWork
    from spillway.agents.live.stage.build import Known
    from spillway.agents.live.stage.crash_watch import CrashWatch
    from spillway.agents.live.stage.crew import Crews
    from spillway.agents.live.stage.driver import Built
    from spillway.agents.live.stage.redundancy_workers import Beside
    from spillway.agents.models.execution import Runner
    from spillway.agents.models.loading import Model
    from spillway.agents.run.memory import Rereading
    from spillway.agents.run.planner import Planner
    from spillway.agents.run.stage import Stage
    from spillway.agents.workers.links import Listener
    from spillway.checkpoint.logs import Logs
    from spillway.producers.models import Models

log = logging.getLogger(__name__)


__all__ = ["StageProcess", "StageProcessConfig", "run"]


def run(config: StageProcessConfig) -> int:
    """Serve until SIGTERM or SIGINT; return the process's exit code: 0 drained, 1 failed (said on stderr)."""
    signal.signal(signal.SIGTERM, nothing_taken)
    isolate_children()
    try:
        with ExitStack() as stack:
            kafka = stack.enter_context(KafkaLog(config.settings))
            config, registry = registered(config, stack, kafka)
            name, keeps = config.pipeline.spec.name, kept_by(config)
            sizes = stack.enter_context(Sizes(config.settings, name, keeps=keeps, log=kafka))
            if config.spec.ensemble is not None:  # the file's need not be the one that is served
                config = config.sized(sizes.newest(), sizes.ensembles())
            lookups = None
            if config.spec.tables or config.spec.learner is not None:
                lookups = stack.enter_context(Lookups(config.settings, config.pipeline.spec, config.spec, kafka))
            copies = [] if config.processes else load_copies(config.spec, [0], config.torch_threads)
            schemas = SchemaLog(config.settings, config.pipeline.spec.name)
            schemas.open()
            config = config.sized(sizes.newest(), sizes.ensembles())  # it was read while the first copy was loaded
            if copies:
                time.sleep(pause_of(config.spec))
                copies += load_copies(config.spec, range(1, config.workers), config.torch_threads)
            if lookups is not None:
                lookups.read()
            return ending(run_loop(_serve(config, copies, schemas, kafka, sizes, lookups, registry)))
    except SpillwayError as error:
        print(f"spillway: {config.pipeline.spec.name}/{config.stage}.{config.replica}: {error}", file=sys.stderr)
        return ending(error.exit_code)


def kept_by(config: StageProcessConfig) -> tuple[bytes, ...]:
    """The keys in the table of sizes that a front sees to: of a stage its first one does."""
    return () if config.standby or config.replica else (key_of(config.stage), record_key(config.stage))


async def _serve(
    config: StageProcessConfig,
    copies: list[tuple[Runner, Model]],
    schemas: SchemaLog,
    kafka: KafkaLog,
    sizes: Sizes,
    lookups: Lookups | None,
    registry: Models | None,
) -> int:
    crew: Crew | Members | VariantCrews | None = None
    beside: Beside | None = None
    known = known_of(copies[0][1] if copies else None)
    crews = local_crews(config.torch_threads)
    try:
        beside = beside_of(config, crews)
        if config.spec.ensemble is not None:
            crew = Members(config, crews)
            record = sizes.ensembles(0.0).get(record_key(config.stage))
            known = await crew.first(all_load=record is None or not record.changed)
        elif config.spec.variants is not None:
            crew = VariantCrews(config, crews, registry)
            known = await crew.first()
        elif config.processes:
            if config.cautious:
                log.warning(
                    "%s: its processes died twice without progress; the model now runs in worker processes",
                    config.stage,
                )
            crew = _crew(config, crews)
            known = known_of_hello(await crew.first())
        if beside is not None:
            await beside.ready()
        if config.standby:
            rehearse(config.stage)
            look_through_rarely()
            config = config.taking(await asyncio.to_thread(wait_to_take, sys.stdin, config))
            for runner, _ in copies[config.workers :]:
                runner.end()
            copies = copies[: config.workers]
        return await StageProcess(config, copies, known, schemas, kafka, sizes, crew, beside, lookups).serve()
    finally:
        if crew is not None:
            await asyncio.to_thread(crew.close, 1.0)
        if beside is not None:
            await asyncio.to_thread(beside.close)


def _crew(config: StageProcessConfig, crews: Crews) -> Crew:
    """The workers of a front, to be started or, where they come from other hosts, waited for."""
    spec, place = config.spec, f"stage {config.stage!r}"
    workers = spec.workers
    if workers.listen is None or workers.tls is None:
        return crews.make(place, spec, config.workers)
    tls = Path(workers.tls)
    context = context_of(tls if tls.is_dir() else config.pipeline.path.parent / tls, front=True)
    address, model = host_and_port(workers.listen), model_hash(str(spec.model), spec.arguments)

    def connect(listener: Listener) -> Links:
        links = Links(listener, timeout=workers.timeout)
        links.listen(address, context, model)
        log.info("%s: waiting for workers at %s:%d; start them with 'spillway worker'", place, *address)
        return links

    return Crew(place, Pool(config.workers, starts=False), crews.clock, connect)


class StageProcess(Serving):
    """The parts of a stage process, and the order in which they start and stop."""

    def __init__(
        self,
        config: StageProcessConfig,
        copies: list[tuple[Runner, Model]],
        known: Known,
        schemas: SchemaLog,
        kafka: KafkaLog,
        sizes: Sizes,
        crew: Crew | Members | VariantCrews | None,
        beside: Beside | None,
        lookups: Lookups | None,
    ) -> None:
        """Build what needs no Kafka; `schemas` is open, and `sizes` is read. Call in a running loop.

        `kafka`: what follows all that the process does.

        `crew`: its workers, where they are processes; `copies`: its threads with their models, where they are threads.
        `beside`: its dispatch. `lookups`: the tables that its queries are given.
        """
        super().__init__(config)
        self._schemas = schemas
        self._kafka = kafka.through(asyncio.get_running_loop().call_soon_threadsafe)
        self._sizes = sizes
        self._runners = [runner for runner, _ in copies]
        self._models = {number: model for number, (_, model) in enumerate(copies)}
        self._known = known
        self._crew = crew
        self._beside = beside
        self._lookups = lookups
        self._name = config.pipeline.spec.name
        self._limits = config.pipeline.spec.limits.merged()
        self._metrics = StageMetrics(
            self._name, config.stage, config.replica, queue_limit=config.spec.queue, instances=len(copies)
        )
        if copies:
            self._metrics.versions = lambda: {known.version: self._metrics.instances}
        elif isinstance(crew, Crew):
            self._metrics.versions = crew.versions
        self._clock = Clock()
        self._facts: dict[str, StageFacts]
        self._rereading: Rereading
        self._scaling: Scaling | None = None
        self._renewing: Renewing | None = None
        self._versions: KafkaLog
        self._states: LogsFeed | None = None
        self._on_news: Callable[[], object] = bool
        self._on_deaf: Callable[[BaseException], object]

    async def serve(self) -> int:
        """Serve until told to stop. Raises SpillwayError where the process has to end without draining."""
        loop, config = asyncio.get_running_loop(), self._config
        self._hear_signals()
        settings = self._config.settings
        logs = self._follow_states(loop)
        guard = build_guard(config.spec, folder_of(config.run_dir, self._name, config.stage))
        given = None if config.spec.ensemble is not None else self._lookups
        work = build_work(config, self._models, self._known, guard, given)
        driver, planner = self._driver(self._schemas, logs, guard, work)
        self._on_news = driver.durability_changed
        self._on_deaf = driver.crashed
        output = Output(
            settings.confluent(),
            loop,
            on_stored=lambda tokens: without_words(tokens, driver.stored),
            on_lost=driver.lost,
            max_bytes=self._limits.max_letter_bytes + 2 * topics.HEADERS_BYTES,
        )
        guard.watch(loop, driver.crashed)
        workers: Threads | Crew | Members | VariantCrews = self._crew or Threads(
            f"stage {config.stage!r}",
            self._models,
            self._runners,
            partial(load_copy, config.spec, config.torch_threads),
            clock=self._clock,
            loop=loop,
            driver=driver,
            work=work.run,
            pause=pause_of(config.spec),
        )
        names = group_id(self._name, config.stage), instance_id(self._name, config.stage, config.replica)
        app = build(config.topic, self._membership(*names), driver, self._config.commit_interval)
        driver.start(FaustInput(app), output, workers)
        if self._crew is not None:
            self._crew.begin(driver, work)
        if self._beside is not None:
            driver.extras = Extras(self._beside, work, loop, driver)
            driver.extras.begin()
        self._follow_sizes(workers, loop)
        if self._renewing is not None:
            self._renewing.begin()
        registration = Registration(self._config.run_dir, self._metrics, self._config.metrics, turns(loop))
        drained = False
        look_through_rarely()
        planner.follow(self._kafka)
        planning = loop.create_task(planner.run(output, driver.tick))
        planning.add_done_callback(driver.planning_ended)
        try:
            await output.know(topics.onward(self._name, config.pipeline.graph.successors[config.stage]))

            def began() -> None:
                registration.mark_ready()
                log.info("%s: serving", config.stage)

            await self._until_stopped(app, loop.create_task(self._start(app)), driver.failed, began)
            drained = await self._drain(app, driver)
        finally:
            planning.cancel()
            if self._stop.is_set():
                planner.farewell(output)
            await self._end(app, output, workers)
            guard.close()
        registration.close()
        return 0 if drained else 1

    def _follow_states(self, loop: asyncio.AbstractEventLoop) -> Logs | None:
        """Begin to read the version logs, where a stage before this one has a state; None where none has."""
        before = self._config.pipeline.graph.rests_on(self._config.stage)
        if not before:
            return None
        self._metrics.marks = marks_histogram()
        post, settings = loop.call_soon_threadsafe, self._config.settings
        self._versions = KafkaLog(settings, ALONE)  # which rest: they are read at once when they are looked at
        self._states = LogsFeed(
            self._versions.through(post),
            self._name,
            [place for place in self._config.pipeline.spec.places if place[0] in before],
            lambda: self._on_news(),  # noqa: PLW0108 - the driver that hears it is made with these logs
            lambda error: self._on_deaf(error),  # noqa: PLW0108
            now=since_boot,
            soon=(),  # it serves what is not durable; only what it commits waits for these logs
        )
        self._states.reader.tick_on(loop)
        return self._states.logs

    def _follow_sizes(self, workers: Threads | Crew | Members | VariantCrews, loop: asyncio.AbstractEventLoop) -> None:
        """Have as many workers as the table of sizes says, from now on."""

        def resize() -> None:
            if self._stop.is_set():
                return
            newest, ensembles = self._sizes.newest(0.0), self._sizes.ensembles(0.0)
            self._config = self._config.sized(newest, ensembles)
            asked = newest.get(key_of(self._config.stage))
            if asked is not None and asked.count != self._config.spec.worker_count:
                log.warning("%s: the size in the table does not fit the stage: %s", self._config.stage, asked.text)
            wanted = self._config.workers
            if isinstance(workers, Members):
                workers.follow(self._config, ensembles.get(record_key(self._config.stage)))
                wanted = sum(workers.wanted().values())
            if wanted != self._metrics.wanted:
                log.info("%s: %d workers are ordered here", self._config.stage, wanted)
            self._metrics.wanted = wanted
            self._metrics.order = asked
            note_sizes(self._facts, self._config.pipeline.spec)
            workers.resize(self._config.workers)
            if isinstance(workers, VariantCrews):
                workers.follow(counts(self._config, workers.wanted(), newest))
            if self._beside is not None:
                self._beside.resize(self._config.workers)

        self._sizes.follow(lambda: None if loop.is_closed() else loop.call_soon_threadsafe(resize))
        resize()

    async def _read_logs(self) -> None:
        if self._states is not None:
            read = asyncio.Event()
            self._states.reader.read_to_ends(read.set)
            await read.wait()
        if self._lookups is not None:
            await asyncio.to_thread(self._lookups.read, own=True)

    async def _start(self, app: StageApp) -> None:
        while self._states is not None and not self._states.ready:  # noqa: ASYNC110 - once, for some milliseconds
            await asyncio.sleep(POLL)
        await app.start()

    def _driver(
        self, schemas: SchemaLog, logs: Logs | None, guard: CrashWatch, work: BatchWork
    ) -> tuple[Stage, Planner]:
        config = self._config
        built = build_driver(
            config,
            DriverParts(
                known=self._known,
                work=work,
                guard=guard,
                metrics=self._metrics,
                clock=self._clock,
                spans=KafkaSpans(config.settings.confluent()),
                decoder=Decoder(self._limits, schemas.book),
                threads=len(self._models),
                crew=self._crew,
                beside=self._beside,
                reload_schemas=schemas.relearn,
                lookups=self._lookups,
                logs=logs,
                read_logs=self._read_logs,
                markers=transacted(config),
            ),
        )
        self._rereading = built.rereading
        self._facts = cast("dict[str, StageFacts]", built.core.view.facts)  # which `build_core` has made
        if config.spec.variants is not None:
            self._scale(built, cast("LanedCore", built.core))
        if self._scaling is not None:
            self._scaling.begin(built.stage.planning_ended)
        return built.stage, built.planner

    def _scale(self, built: Built, core: LanedCore) -> None:
        """Scale and renew the stage's variants, if they are to be."""
        lanes, route = core.lanes, built.route
        section, crews = self._config.spec.variants, self._crew
        assert section is not None  # the caller has looked
        assert isinstance(crews, VariantCrews)
        if section.scale and self._config.claims is not None:
            self._scaling = Scaling(self._config, route, lanes, crews, self._sizes, self._clock)
            self._metrics.lanes = VariantMetrics(lanes, route.stats, crews.wanted, self._scaling)
        if crews.registry is not None:
            self._renewing = Renewing(self._config, crews.registry, crews, core, route, built.stage)

    async def _drain(self, app: StageApp, driver: Stage) -> bool:
        """Finish what was taken and commit it; False if something was left for the next owner."""
        drained = await self._finish(app, driver.failed, stop_taking=driver.stop_taking, settled=lambda: driver.idle)
        if not drained:
            log.error("%s: stopped with work left; it goes to the stage's next owner", self._config.stage)
        return drained

    async def _end(self, app: StageApp, output: Output, workers: Threads | Crew | Members | VariantCrews) -> None:
        self._bound()
        if self._scaling is not None:
            self._scaling.stop()
        await self._end_app(app)
        await self._rereading.stop(1.0)
        await output.close()
        await asyncio.to_thread(workers.close, 1.0)
        if self._states is not None:
            self._states.reader.close()
            await self._versions.close()
