"""A pipeline served on this machine: its topics, its processes, and its entry in the run directory."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from spillway.agents.core.joins import longest_wait
from spillway.agents.core.policies import period_of, words_for
from spillway.agents.live import leftovers
from spillway.agents.live import topics as live_topics
from spillway.agents.live.groups import group_id, member_label, member_of, standby_label
from spillway.agents.live.registry import Address, MetricsServer
from spillway.agents.live.sizes import announce
from spillway.agents.live.states.beats import Reporter
from spillway.agents.models.loading import load_policy
from spillway.agents.supervise.child import GATE, GATEWAY, MEMBER, NO_GROUP, STAGE, STANDBY, TUNER, ChildPlan
from spillway.agents.supervise.companions import Companions, port_after
from spillway.agents.supervise.console import STOPPED_EARLY
from spillway.agents.supervise.groups import KafkaGroups, watched_groups
from spillway.agents.supervise.lifecycle import RestartPolicy, State
from spillway.agents.supervise.ownership import Ownership
from spillway.agents.supervise.registry import ServeEntry, entries, serve_path
from spillway.agents.supervise.supervisor import Supervisor, SupervisorSettings
from spillway.lineage import metric_names as names
from spillway.lineage.errors import BrokerError, SpillwayError, UsageError
from spillway.topology.topics import egress, topic_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from prometheus_client import Metric

    from spillway.agents.supervise.child import Child
    from spillway.agents.supervise.companions import Companion
    from spillway.agents.supervise.table import Row
    from spillway.producers.connection import ClientSettings
    from spillway.topology.load import Pipeline
    from spillway.topology.spec import StageSpec

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServiceSettings:
    """What to serve and how. `environment` is the children's; `client_config` is the file that `cluster` came from."""

    pipeline: Pipeline
    cluster: ClientSettings
    run_dir: Path
    client_config: Path | None = None
    policy: str | None = None
    plan_period: float | None = None  # seconds; None: as the policies say
    environment: Mapping[str, str] | None = None
    ready_file: Path | None = None
    take_over: bool = False  # from whoever serves the pipeline now
    tune: bool = False  # have a tuner beside them, which goes by the plan in `sizes`
    elsewhere: tuple[str, ...] = ()  # learners that another command serves
    sizes: tuple[str, ...] = ()  # the options of every process that say what plan is served
    metrics: Address = Address()  # noqa: RUF009 - immutable. Of the supervisor; its processes have the ports after it
    log_format: str = "text"
    tracing: tuple[str, ...] = ()  # the gate's options that say where traces go
    gateway: tuple[str, ...] = ()  # the options of a gateway beside them; empty: there is none
    # For who serves only as long as something else lasts, and wants to know what goes wrong meanwhile.
    supervision: SupervisorSettings = field(default_factory=lambda: SupervisorSettings(RestartPolicy(give_up=5)))

    @property
    def period(self) -> float:
        """Seconds between two words of a replica to the others; the same for all stages, whatever their policies."""
        if self.plan_period is not None:
            return self.plan_period
        return period_of((self.policy or stage.policy for stage in self.pipeline.spec.stages), load_policy)


# Which processes a pipeline needs on this machine, and how each is started.
#
# A stateless stage has its replicas, and standbys that wait to take a dead one's place; a stateful stage has a process
# for each member of each shard; there is the gate; the tuner, where sizes follow the load; and a gateway, where
# clients ask by HTTP.


def join_holds(pipeline: Pipeline) -> dict[str, float]:
    """By stage that joins, and the gate where it does: how long a half-heard request may hold its input back."""
    spec, graph = pipeline.spec, pipeline.graph
    joining = [stage.name for stage in spec.stages if graph.is_join(stage.name)]
    if len(graph.sinks) > 1:
        joining.append(GATE)
    return dict.fromkeys(joining, longest_wait(spec.slo))


def child_plans(settings: ServiceSettings) -> list[ChildPlan]:
    period = ["--plan-period", str(settings.period)]
    plans = [plan for stage in settings.pipeline.spec.stages for plan in _stage_plans(settings, stage, period)]
    gate = _command(settings, ["--gate", *period, *settings.tracing])
    plans.append(ChildPlan(GATE, 0, GATE, gate, settings.environment))
    if settings.tune:
        plans.append(ChildPlan(TUNER, 0, TUNER, _command(settings, ["--tuner"]), settings.environment, TUNER))
    if settings.gateway:
        gateway = [*_command(settings, (), "gateway"), *settings.gateway]
        plans.append(ChildPlan(GATEWAY, 0, GATEWAY, gateway, settings.environment))
    host, base = settings.metrics
    listen = ["--metrics-host", host] if settings.metrics != Address() else []
    ports = (["--metrics-port", str(base + 1 + place)] if base else [] for place in range(len(plans)))
    return [replace(plan, command=[*plan.command, *listen, *port]) for plan, port in zip(plans, ports, strict=True)]


def _stage_plans(settings: ServiceSettings, stage: StageSpec, period: Sequence[str]) -> Iterator[ChildPlan]:
    policy = [] if settings.policy is None else ["--policy", settings.policy]

    def command(replica: int, *more: str) -> list[str]:
        what = ["--stage", stage.name, "--replica", str(replica), *more]
        return _command(settings, [*what, *period, *policy])

    if stage.replicated:
        for replica in range(stage.processes):
            label = member_label(stage, replica)
            yield ChildPlan(
                *(stage.name, replica, MEMBER, command(replica), settings.environment, label),
                shard=member_of(stage, replica)[0],
                member=group_id(settings.pipeline.spec.name, label),
            )
        return
    # A state that is not replicated lives in an ordinary replica, one for each shard.
    for replica in range(stage.fronts):
        waits = stage.workers.where == "remote"
        yield ChildPlan(stage.name, replica, STAGE, command(replica), settings.environment, waits=waits)
    for number in range(stage.workers.standby):
        label = standby_label(stage.name, number)
        yield ChildPlan(stage.name, number, STANDBY, command(number, "--standby"), settings.environment, label)


def _command(settings: ServiceSettings, what: Sequence[str], command: str = "serve") -> list[str]:
    """`spillway serve`, or another command, for one process, by module, as the script may not be on PATH.

    -P: the working directory must not come before our own rooms; the command adds it after them, for users' models.
    """
    python = [sys.executable, "-P", "-m", "spillway.agents.cli.main", command, str(settings.pipeline.path)]
    where = ["--bootstrap", settings.cluster.bootstrap, "--run-dir", str(settings.run_dir)]
    if settings.client_config is not None:
        where += ["--client-config", str(settings.client_config)]
    if settings.log_format != "text":
        where += ["--log-format", settings.log_format]
    sizes = settings.sizes if command == "serve" else ()
    return [*python, *what, *where, *sizes, "--parent", str(os.getpid())]


EVERY_SECONDS: Final = 2.0


def targets_path(run_dir: Path, pipeline: str) -> Path:
    return run_dir / pipeline / "prometheus" / "targets.json"


class Targets:
    """Writes the file whenever a process has come, gone, or taken another port."""

    def __init__(self, run_dir: Path, pipeline: str) -> None:
        self._run_dir = run_dir
        self._pipeline = pipeline
        self._path = targets_path(run_dir, pipeline)
        self._written: list[dict[str, Any]] | None = None
        self._next = float("-inf")

    def keep(self, now: float) -> None:
        """Look, at most every `EVERY_SECONDS`."""
        if now < self._next:
            return
        self._next = now + EVERY_SECONDS
        found = list(self._found())
        if found == self._written:
            return
        draft = self._path.with_suffix(".partial")  # Prometheus reads *.json alone
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(json.dumps(found, indent=1))
            draft.replace(self._path)
        except OSError as error:  # a full disk is no reason not to serve
            log.warning("%s cannot be written; trying again: %s", self._path, error)
        else:
            self._written = found

    def _found(self) -> Iterator[dict[str, Any]]:
        serve = ServeEntry.read(self._run_dir, self._pipeline)
        if serve is not None and serve.port:
            yield self._target(serve.host, serve.port, "supervisor")
        for entry in entries(self._run_dir, self._pipeline):
            if entry.port and entry.alive():
                yield self._target(entry.host, entry.port, entry.name)

    def _target(self, host: str, port: int, place: str) -> dict[str, Any]:
        return {"targets": [f"{host}:{port}"], "labels": {names.PIPELINE: self._pipeline, names.PLACE: place}}


_LABELS = (*names.LABELS, names.PLACE)


class PlaceMetrics(Collector):
    """The metrics of a pipeline's places, read on a loopback port of the supervisor's from another thread."""

    def __init__(
        self,
        pipeline: str,
        children: Sequence[Child],
        address: Address = Address(),  # noqa: B008
        unanswered: Callable[[], float] = float,
    ) -> None:
        """Serve them; `address` says where. Ready is a supervisor all of whose places are."""
        self._pipeline = pipeline
        self._children = children
        self._unanswered = unanswered
        self._server = MetricsServer(self, address, ready=self._not_serving)
        self.address = self._server.address

    def _not_serving(self) -> str:
        missing = [child.plan.name for child in self._children if child.life.state is not State.RUNNING]
        return f"not serving: {', '.join(missing)}" if missing else ""

    def collect(self) -> Iterator[Metric]:
        now = time.monotonic()
        restarts = CounterMetricFamily(
            names.PLACE_RESTARTS_TOTAL.removesuffix("_total"), "Restarts of the process", labels=_LABELS
        )
        flapping = GaugeMetricFamily(
            names.PLACE_FLAPPING, "1 where the process keeps dying, or was given up", labels=_LABELS
        )
        for child in self._children:
            plan, life = child.plan, child.life
            labels = (self._pipeline, plan.stage, str(plan.replica), plan.name)
            restarts.add_metric(labels, life.restarts)
            flapping.add_metric(labels, float(life.flaps(now)))
        yield restarts
        yield flapping
        text = "Seconds for which queries have waited while none was answered"
        silent = GaugeMetricFamily(names.UNANSWERED_SECONDS, text, labels=(names.PIPELINE,))
        silent.add_metric((self._pipeline,), self._unanswered())
        yield silent

    def close(self) -> None:
        self._server.close()


class Service:
    """Serves one pipeline, and its learners beside it, from `run` until it is told to stop.

    See `Supervisor` for `say`, `show` and `keep`; only the pipeline's own processes are shown.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        *,
        say: Callable[[str], None],
        show: Callable[[Sequence[Row]], None] = lambda _rows: None,
        keep: Callable[[float], None] = lambda _now: None,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_ready = on_ready
        self.ready = threading.Event()
        self._settings = settings
        self._say = say
        self._targets = Targets(settings.run_dir, settings.pipeline.spec.name)
        self._also_keep = keep
        spec = settings.pipeline.spec
        self._name = spec.name
        self._entry = ServeEntry(
            pipeline=self._name,
            spec=str(settings.pipeline.path),
            bootstrap=settings.cluster.bootstrap,
            client_config=str(settings.client_config) if settings.client_config is not None else None,
            pid=os.getpid(),
            started_unix=time.time(),
            policy=settings.policy,
            policies=words_for(spec, settings.policy),
            plan_period=settings.period,
        )
        if not settings.take_over:
            self._refuse_second()
        self._forget_dead()
        self.supervisor = Supervisor(
            self._name,
            child_plans(settings),
            settings.run_dir,
            settings=replace(settings.supervision, holds=join_holds(settings.pipeline)),
            groups=KafkaGroups(settings.cluster, self._name, watched_groups(settings.pipeline)),
            say=say,
            show=show,
            keep=self._keep,
        )
        self._learners = Companions([*self._of_learners(), *self._managers()])

    def _of_learners(self) -> Iterator[Service]:
        settings, count = self._settings, len(self.supervisor.children)
        for learner in settings.pipeline.learners:
            if learner.spec.stages[0].name in self._settings.elsewhere:
                continue
            alone = replace(settings, pipeline=learner, policy=None, ready_file=None, tune=False, sizes=(), gateway=())
            settings = replace(alone, metrics=port_after(settings.metrics, count))
            service = Service(settings, say=partial(self._say_of, learner.spec.name))
            count = len(service.supervisor.children)
            yield service

    def _managers(self) -> Iterator[Companion]:
        settings = self._settings
        if any(stage.has_generations for stage in settings.pipeline.spec.stages[:1]):
            from spillway.agents.supervise.model_manager import ModelManager  # noqa: PLC0415 - most pipelines have none

            where = (settings.pipeline, settings.cluster, settings.client_config)
            yield ModelManager(*where, self.ready, self._say, settings.environment)

    def _say_of(self, learner: str, text: str) -> None:
        self._say(f"{learner}: {text}")

    def hurry(self) -> None:
        """Have processes end at once that were asked to."""
        self.supervisor.hurry()
        self._learners.hurry()

    def _keep(self, now: float) -> None:
        self._targets.keep(now)
        if self.supervisor.was_ready and self._learners.ready and not self.ready.is_set():
            self._tell_ready()
        self._also_keep(now)

    def run(self, stop: threading.Event) -> int:
        """Create and check the topics, start the processes and keep them until `stop`; returns the exit code.

        Raises OwnedError where somebody else serves the pipeline, TakenOverError when somebody else does so from then
        on and the processes have ended.
        """
        self._learners.start(stop.set)
        run_dir = self._settings.run_dir
        if not self._settings.take_over:  # then the entry is still another's
            self._entry.write(run_dir)  # for who asks while it starts
        try:
            code = self._run(stop)
        finally:
            written = ServeEntry.read(run_dir, self._name)
            if written is not None and written.pid == os.getpid():  # and not of who has taken over
                serve_path(run_dir, self._name).unlink(missing_ok=True)
            learners = self._learners.end()
        return code or learners

    def _run(self, stop: threading.Event) -> int:
        settings = self._settings
        self._say(self._entry.policies)
        plan = topic_plan(settings.pipeline.spec)
        try:
            created = live_topics.ensure(settings.cluster, plan, say=self._say, stopping=stop.is_set)
        except BrokerError:
            if stop.is_set():
                self._say(STOPPED_EARLY)
                return 0
            raise
        if created:
            self._say(f"created {len(created)} topics for {self._name}")
        elif live_topics.written(settings.cluster, egress(self._name), settings.pipeline.spec.partitions):
            self.supervisor.served_before()
        for each in leftovers.left(settings.cluster, settings.pipeline.spec):
            if each.unread:
                self._say(str(each))
        plans = [child.plan for child in self.supervisor.children if child.plan.role not in NO_GROUP]
        names = [f"{plan.stage}.{plan.replica}" for plan in plans]
        owned = Ownership(settings.cluster, self._name, names, take_over=settings.take_over, say=self._say)
        try:
            if not owned.claim(stop.is_set):
                self._say(STOPPED_EARLY)
                return 0
            owned.keep(stop.set, stop.is_set)
            announce(settings.cluster, settings.pipeline, owned.epoch)
            code = self._serve(stop, owned)
        finally:
            owned.leave()
        owned.require()
        return code

    def _serve(self, stop: threading.Event, owned: Ownership) -> int:
        settings = self._settings
        stages, watched = settings.pipeline.spec.stages, self.supervisor
        # Where deaths of members are told: nowhere, if no stage has members that wait for them.
        replicated = any(stage.replicated and stage.required_state.backups for stage in stages)
        obituaries = Reporter(settings.cluster, self._name) if replicated else None
        metrics = PlaceMetrics(self._name, watched.children, settings.metrics, watched.unanswered)
        self._entry = replace(self._entry, port=metrics.address.port, host=metrics.address.local)
        self._entry.write(settings.run_dir)
        try:
            watched.obituaries, watched.owned = obituaries, owned
            return watched.run(stop)
        finally:
            metrics.close()
            if obituaries is not None:
                obituaries.close()
            if settings.ready_file is not None:
                settings.ready_file.unlink(missing_ok=True)

    def _tell_ready(self) -> None:
        entry = replace(self._entry, ready=True)
        written = entry.write(self._settings.run_dir)
        if self._settings.ready_file is not None:
            self._settings.ready_file.parent.mkdir(parents=True, exist_ok=True)
            self._settings.ready_file.write_bytes(written.read_bytes())
        self.ready.set()
        self._on_ready()

    def _refuse_second(self) -> None:
        other = ServeEntry.running(self._settings.run_dir, self._name)
        if other is not None:
            raise UsageError(
                f"{self._name} is already served by process {other.pid}, at {other.bootstrap}: stop that process, "
                "start this one with --take-over, which ends it, or use another --run-dir for another cluster"
            )

    def _forget_dead(self) -> None:
        for entry in entries(self._settings.run_dir, self._name):
            if not entry.alive():
                (self._settings.run_dir / self._name / f"{entry.name}.json").unlink(missing_ok=True)


@contextmanager
def served(
    settings: ServiceSettings,
    *,
    say: Callable[[str], None],
    show: Callable[[Sequence[Row]], None] = lambda _rows: None,
    keep: Callable[[float], None] = lambda _now: None,
    timeout: float = 300.0,
) -> Iterator[Service]:
    """Serve a pipeline in a thread while the context is open, from when it is ready until it is drained.

    Raises `SpillwayError` if it does not become ready, or fails while the context is open.
    """
    service = Service(settings, say=say, show=show, keep=keep)
    stop = threading.Event()
    ends: list[int | BaseException] = []

    def run() -> None:
        try:
            ends.append(service.run(stop))
        except BaseException as error:  # noqa: BLE001 - whoever left the context raises it
            ends.append(error)

    thread = threading.Thread(target=run, name="service")
    thread.start()
    try:
        give_up = time.monotonic() + timeout
        while not service.ready.wait(0.05) and thread.is_alive() and time.monotonic() < give_up:
            pass
        if service.ready.is_set():
            yield service
    except BaseException:
        service.hurry()
        raise
    finally:
        stop.set()
        thread.join()
    if isinstance(ends[0], BaseException):
        raise ends[0]
    name = settings.pipeline.spec.name
    if not service.ready.is_set():
        raise SpillwayError(f"{name} did not become ready (its logs are in {settings.run_dir / name / 'logs'})")
    if ends[0]:
        raise SpillwayError(f"a process of {name} was given up")
