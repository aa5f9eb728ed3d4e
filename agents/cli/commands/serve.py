"""`spillway serve`: a pipeline's processes under a supervisor, or one of them alone."""

from __future__ import annotations

import gc
import os
import signal
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import click

from spillway.agents import log
from spillway.agents.cli.addresses import address, refuse_open
from spillway.agents.cli.options import (
    FILE,
    FOUND_FILE,
    bootstrap_option,
    broker_dir_option,
    cache_dir,
    client_config_option,
    given,
    http_url,
    log_format,
    metrics_options,
    pipeline_argument,
    plan_period_option,
    positive,
    run_dir_option,
)
from spillway.lineage.errors import UsageError
from spillway.producers.connection import ClientSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from spillway.agents.live.registry import Address
    from spillway.topology.capacity.plan import Plan
    from spillway.topology.load import Pipeline
    from spillway.topology.spec import StageSpec

INTERRUPTED = 130
# A stage uses more cores by replicas and instances; without these, each process starts a thread per core for itself.
ONE_THREAD_EACH = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@click.command()
@pipeline_argument
@bootstrap_option
@client_config_option
@broker_dir_option("--broker-dir")
@run_dir_option
@click.option("--policy", help="Use this policy in every stage, not the file's; also as pard:quantile=.2.")
@click.option(
    "--sizes",
    "plan",
    type=FOUND_FILE,
    metavar="PLAN",
    help="Take workers and batch limits from this plan of 'spillway plan provision'.",
)
@click.option("--tune", is_flag=True, help="Adapt the plan's sizes to the load.")
@click.option(
    "--tune-form",
    type=click.Choice(["envelope", "paper"]),
    default="envelope",
    show_default=True,
    help="How the tuner computes sizes from the arrivals.",
)
@click.option("--http", callback=address, metavar="HOST:PORT", help="Run a gateway, too: 'spillway gateway' there.")
@click.option("--tokens", type=FOUND_FILE, help="The gateway's tokens.")
@click.option("--tuner", is_flag=True, help="Run the tuner alone, for an orchestrator.")
@click.option("--stage", metavar="NAME", help="Run one replica of this stage alone, for an orchestrator.")
@click.option("--gate", is_flag=True, help="Run the gate alone, for an orchestrator.")
@click.option(
    "--replica", type=click.IntRange(0), default=0, help="Which replica, with --stage or --gate.  [default: 0]"
)
@click.option(
    "--stall",
    default="30s",
    callback=positive,
    metavar="TIME",
    help="Restart a replica that commits nothing for this long while records wait and no batch is running.  "
    "[default: 30s]",
)
@click.option(
    "--give-up",
    type=click.IntRange(1),
    metavar="N",
    help="Give a process up after N deaths in a row; 12 s of service reset the count.  [default: never]",
)
@metrics_options
@plan_period_option
@click.option("--ready-file", type=FILE, help="File to write when all is ready.")
@click.option(
    "--take-over", is_flag=True, help="End the other processes that serve the pipeline, or this replica; then start."
)
@click.option(
    "--feedback",
    "elsewhere",
    multiple=True,
    metavar="LEARNER",
    help="Do not serve this learner here: 'spillway serve FILE#LEARNER' does it elsewhere. Can be repeated.",
)
@log_format
@click.option(
    "--otlp",
    envvar="OTEL_EXPORTER_OTLP_ENDPOINT",
    show_envvar=True,
    callback=http_url,
    metavar="URL",
    help="Send traces to this OpenTelemetry collector, by OTLP over HTTP (such as http://127.0.0.1:4318).",
)
@click.option(
    "--trace-sample",
    type=click.FloatRange(0, 1),
    default=0.1,
    show_default=True,
    metavar="SHARE",
    help="With --otlp: of queries without a traceparent, the share to trace. Drops and failures always are.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print no table, only events.")
@click.option("--standby", is_flag=True, hidden=True, help="With --stage: wait for a line 'take REPLICA' on stdin.")
@click.option("--cautious", is_flag=True, hidden=True, help="With --stage: run the model in worker processes.")
@click.option("--member-name", hidden=True, help="With a stateful --stage: this process's name among members.")
@click.option("--parent", type=int, hidden=True, help="The process that this one must not outlive.")
def serve(
    pipeline: Path, stage: str | None, parent: int | None, plan: Path | None, *, gate: bool, tuner: bool, **options: Any
) -> int:
    """Serve a pipeline on this machine until it is stopped.

    Starts a process for each replica of each stage, and the gate. Restarts dead processes without limit, with delays
    that grow to 30 s. Exception: if the pipeline has never answered a query and was never completely ready, it ends at
    the third death of a process that was never ready (the fifth of another). Without --bootstrap it uses the local
    Kafka, and starts it if necessary. Prints 'ready' when everything is. SIGTERM drains and exits with 0, Ctrl-C with
    130; a second Ctrl-C does not wait. The exit code is 1 if a process was given up. A pipeline that is already served,
    on any machine, is refused with exit code 2; --take-over ends the other server, which drains and exits with 1.

    With --sizes the stages have the workers and batch limits of a plan. With --tune another process, the tuner, adds
    and removes workers with the load; 'spillway change scale --hold' takes a stage away from it.

    The pipeline's learners are served beside it, except those that --feedback names: another command serves these.

    \b
    Examples:
      spillway serve examples/hello/pipeline.yaml
      spillway serve pipeline.yaml --bootstrap kafka:9092 --stage detect --replica 1
      spillway serve pipeline.yaml --feedback taste & spillway serve pipeline.yaml#taste
    """  # noqa: D301 - click's own marks
    if parent is not None:
        from spillway.agents.supervise.parent import follow_parent  # noqa: PLC0415 - first of all, in the shortest time

        follow_parent(parent)
        gc.disable()  # until all is imported: that makes no garbage, and looking for it takes a tenth of the time
    from spillway.agents.cli.policies import load_warned  # noqa: PLC0415 - after follow_parent: it takes its time
    from spillway.topology.load import load  # noqa: PLC0415

    _refuse_contradictions(stage, plan, gate=gate, tuner=tuner, tune=options["tune"], otlp=options["otlp"])
    loaded = load_warned(pipeline) if parent is None else load(pipeline)  # a parent has looked
    sizes: Plan | None = None
    if plan is not None:
        from spillway.topology.capacity.plan import read_plan  # noqa: PLC0415 - only here
        from spillway.topology.capacity.served import planned  # noqa: PLC0415 - the same

        sizes = read_plan(plan)
        loaded = planned(loaded, sizes)
    if stage is None and not gate and not tuner:
        from spillway.agents.cli.policies import require_policies  # noqa: PLC0415 - a stage's process finds out by itself

        require_policies(loaded, options["policy"])
        for learner in options["elsewhere"]:
            loaded.learner(learner, profiled=False)  # it says which there are, where there is none
        return _supervise(loaded, sizes, plan, options)
    if stage is not None:
        loaded.spec.stage(stage)  # as above
    settings = ClientSettings.load(options["bootstrap"], options["client_config"])
    replica = None if options["standby"] or tuner else options["replica"]  # a standby has none before it is needed
    log.to_stderr(options["log_format"], stage or ("tuner" if tuner else "gate"), replica)
    if tuner and sizes is not None:
        return _tuner(loaded, sizes, settings, options)
    run = _gate(loaded, settings, options) if stage is None else _stage(loaded, stage, settings, options)
    if parent is not None:  # which owns what its children run
        return run()
    _ensure_topics(loaded, settings)
    if options["standby"]:  # which is nobody yet, and takes the place of who is dead
        return run()
    return _own(loaded, settings, stage, options["replica"], run, take_over=options["take_over"])


# Options of the supervisor, and what stands in for them where an orchestrator starts the processes.
_SUPERVISORS: Final = {
    "ready_file": "ask /readyz of its --metrics-port",
    "give_up": "the orchestrator decides how often to restart a process",
    "stall": "ask /healthz of its --metrics-port",
    "tune": "run 'serve --tuner' beside the others",
    "http": "run 'spillway gateway' beside the others",
    "tokens": "run 'spillway gateway' beside the others",
    "elsewhere": "a single process serves no learners",
}


def _refuse_contradictions(
    stage: str | None, plan: Path | None, *, gate: bool, tuner: bool, tune: bool, otlp: str | None
) -> None:
    """Raise UsageError for options that do not go together."""
    if (stage is not None) + gate + tuner > 1:
        raise UsageError("--stage, --gate and --tuner exclude each other: a process is one of them")
    alone = stage is not None or gate or tuner
    for option, instead in _SUPERVISORS.items() if alone else ():
        if given(option):
            name = "--feedback" if option == "elsewhere" else f"--{option.replace('_', '-')}"
            raise UsageError(f"{name} is for the supervisor; with --stage, --gate or --tuner, {instead}")
    if not alone and given("replica"):
        raise UsageError("--replica says which one of a --stage, or of the --gate: give one of these as well")
    if (stage is not None or tuner) and (given("otlp") or given("trace_sample")):
        raise UsageError("--otlp and --trace-sample are the gate's, which makes all spans of a trace: give them to it")
    if given("trace_sample") and otlp is None:
        raise UsageError("--trace-sample is a share of the traces that are sent: say where to, with --otlp URL")
    if given("broker_dir") and given("bootstrap"):
        raise UsageError("--bootstrap and --broker-dir exclude each other: each names a cluster")
    if (tuner or tune) and plan is None:
        raise UsageError("a tuner goes by a plan: name it with --sizes PLAN ('spillway plan provision' makes one)")
    if not (alone or tune) and given("tune_form"):
        raise UsageError("--tune-form says how a tuner computes sizes: give --tune as well")


def _tuned(pipeline: Pipeline, planned: Mapping[str, object]) -> str:
    """Return what a tuner goes by, which changes the stages of a plan."""
    kept = ", ".join(stage.name for stage in pipeline.spec.stages if stage.name not in planned)
    keeps = f"; sizes fixed by the file: {kept} (state, copies or several fronts)" if kept else ""
    return f"sizes follow the load: {', '.join(planned)}{keeps}"


def _tight(pipeline: Pipeline, plan: Plan, policy: str | None) -> str | None:
    """Return what to say of a plan that leaves the policy in force no room; None where all is well."""
    from spillway.agents.core.policies import effective, selected  # noqa: PLC0415 - only here
    from spillway.agents.models.loading import load_policy  # noqa: PLC0415 - the same
    from spillway.topology.capacity.room import remark  # noqa: PLC0415

    settings = effective(pipeline.spec, policy).values()
    planned = any(getattr(selected(each, load_policy).parameters, "duration", None) == "planned" for each in settings)
    return remark(plan, pipeline.spec) if planned else None


def _tuner(pipeline: Pipeline, plan: Plan, settings: ClientSettings, options: Mapping[str, Any]) -> int:
    from spillway.agents.supervise.tuner import TuningConfig, run  # noqa: PLC0415 - only here
    from spillway.topology.capacity.served import basis_of  # noqa: PLC0415 - the same

    gc.enable()
    return run(
        TuningConfig(
            pipeline=pipeline,
            basis=basis_of(plan),
            settings=settings,
            run_dir=options["run_dir"],
            form=options["tune_form"],
            metrics=_address(options),
        )
    )


def _own(
    pipeline: Pipeline,
    settings: ClientSettings,
    stage: str | None,
    replica: int,
    run: Callable[[], int],
    *,
    take_over: bool,
) -> int:
    """Run the gate, or a process of `stage`, for as long as no other one takes it over."""
    from spillway.agents.live.sizes import announce  # noqa: PLC0415 - a supervisor's children do without
    from spillway.agents.supervise.ownership import Ownership  # noqa: PLC0415 - the same

    name = f"{stage or 'gate'}.{replica}"
    owned = Ownership(settings, pipeline.spec.name, [name], take_over=take_over)
    try:
        owned.claim()
        owned.keep(lambda: os.kill(os.getpid(), signal.SIGTERM))
        if stage is not None:
            announce(settings, pipeline, owned.epoch, stage)
        code = run()
    finally:
        owned.leave()
    owned.require()
    return code


def _stage(pipeline: Pipeline, stage: str, settings: ClientSettings, options: Mapping[str, Any]) -> Callable[[], int]:
    """What runs one replica. Raises UsageError for what cannot be."""
    from spillway.agents.live.stage.config import StageProcessConfig  # noqa: PLC0415 - the supervisor does without

    spec = pipeline.spec.stage(stage)
    replica = options["replica"]
    if spec.stateful:
        _refuse_as_member(spec, replica, options)
    elif not options["standby"] and replica >= spec.fronts:
        only = "--replica 0 alone" if spec.fronts == 1 else f"--replica 0 to {spec.fronts - 1}"
        raise UsageError(
            f"stage {spec.name!r} has {spec.fronts} front{'s' if spec.fronts > 1 else ''}, {only}: give it more with "
            f"'workers: {{fronts: ...}}' in {pipeline.path}"
        )
    from spillway.agents.supervise.ownership import Ownership  # noqa: PLC0415 - imports Kafka's clients

    config = StageProcessConfig(
        pipeline=pipeline,
        stage=stage,
        replica=replica,
        settings=settings,
        run_dir=options["run_dir"],
        policy=options["policy"],
        plan_period=options["plan_period"],
        standby=options["standby"],
        cautious=options["cautious"],
        metrics=_address(options),
        member_name=options["member_name"] or "",
        claims=Ownership,
    )

    def run() -> int:
        if spec.stateful:
            from spillway.agents.live.stateful.process import run as serve_as  # noqa: PLC0415 - imports Faust, as below
        else:
            from spillway.agents.live.stage.process import run as serve_as  # noqa: PLC0415
        gc.enable()
        return serve_as(config)

    return run


def _refuse_as_member(spec: StageSpec, replica: int, options: Mapping[str, Any]) -> None:
    """Raise UsageError for what a process of a stateful stage cannot be."""
    if options["standby"]:
        raise UsageError(
            f"stage {spec.name!r} keeps a state: its backups already stand by, so --standby does not apply"
        )
    if replica >= spec.processes:
        members = spec.required_state.members
        raise UsageError(
            f"stage {spec.name!r} has {spec.processes} processes, --replica 0 to {spec.processes - 1}: {members} for "
            f"each of its shards ({spec.shards})"
        )


def _gate(pipeline: Pipeline, settings: ClientSettings, options: Mapping[str, Any]) -> Callable[[], int]:
    from spillway.agents.core.policies import period_of  # noqa: PLC0415 - imports what the supervisor does without
    from spillway.agents.live.gate import process as gate_process  # noqa: PLC0415 - the same
    from spillway.agents.models.loading import load_policy  # noqa: PLC0415 - the same

    gc.enable()
    settings_of = (options["policy"] or stage.policy for stage in pipeline.spec.stages)
    period = options["plan_period"] or period_of(settings_of, load_policy)
    config = gate_process.GateProcessConfig(
        pipeline=pipeline,
        replica=options["replica"],
        settings=settings,
        run_dir=options["run_dir"],
        plan_period=period,
        metrics=_address(options),
        otlp=options["otlp"],
        trace_sample=options["trace_sample"],
    )
    return lambda: gate_process.run(config)


# Options that are settings of the service as they are.
_SETTINGS: Final = ("policy", "plan_period", "ready_file", "take_over", "tune", "elsewhere", "log_format")


def _supervise(pipeline: Pipeline, plan: Plan | None, file: Path | None, options: Mapping[str, Any]) -> int:
    from spillway.agents.supervise.kept_broker import kept_broker  # noqa: PLC0415
    from spillway.agents.supervise.lifecycle import RestartPolicy  # noqa: PLC0415
    from spillway.agents.supervise.service import Service, ServiceSettings  # noqa: PLC0415
    from spillway.agents.supervise.supervisor import SupervisorSettings  # noqa: PLC0415
    from spillway.agents.supervise.table import Display  # noqa: PLC0415 - a stage's process does without these

    stop, interrupted = threading.Event(), threading.Event()
    for number in (signal.SIGTERM, signal.SIGHUP):  # the terminal that closes is no reason not to drain
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: stop.set())
    with ExitStack() as stack:
        display = stack.enter_context(Display(pipeline.spec.name, quiet=options["quiet"]))
        bootstrap, client_config, run_dir = (options[name] for name in ("bootstrap", "client_config", "run_dir"))
        sample = str(options["trace_sample"])
        keep: Any = lambda _now: None  # noqa: E731 - replaced below where there is something to keep
        # A folder that is named on the command line wins over the environment.
        if given("broker_dir") or (bootstrap is None and client_config is None):
            broker = stack.enter_context(kept_broker(options["broker_dir"], cache_dir=cache_dir(), say=display.say))
            bootstrap, client_config, keep = broker.bootstrap, None, broker.keep
        service = Service(
            ServiceSettings(
                pipeline=pipeline,
                cluster=ClientSettings.load(bootstrap, client_config),
                run_dir=run_dir.absolute(),
                client_config=client_config,
                environment={**dict.fromkeys(ONE_THREAD_EACH, "1"), **os.environ},
                sizes=() if file is None else ("--sizes", str(file.absolute()), "--tune-form", options["tune_form"]),
                metrics=_address(options),
                tracing=() if options["otlp"] is None else ("--otlp", options["otlp"], "--trace-sample", sample),
                gateway=_gateway(options["http"], options["tokens"]),
                supervision=SupervisorSettings(RestartPolicy(give_up=options["give_up"]), options["stall"]),
                **{name: options[name] for name in _SETTINGS},
            ),
            say=display.say,
            show=display.show,
            keep=keep,
            on_ready=display.ready,
        )

        if plan is not None:
            if options["tune"]:
                display.say(_tuned(pipeline, plan.stages))
            if (tight := _tight(pipeline, plan, options["policy"])) is not None:
                display.say(f"note: {tight}")

        # What the Kafka client has to say would spoil the table; what a person should know is said there anyway.
        log.to_file(run_dir / pipeline.spec.name / "logs" / "supervisor.log", options["log_format"], "supervisor")

        def interrupt(*_: object) -> None:
            if stop.is_set():
                service.hurry()
            interrupted.set()
            stop.set()

        signal.signal(signal.SIGINT, interrupt)
        code = service.run(stop)
    return code or (INTERRUPTED if interrupted.is_set() else 0)


def _gateway(http: Address | None, tokens: Path | None) -> tuple[str, ...]:
    if http is None:
        if tokens is not None:
            raise UsageError("--tokens is for a gateway: give --http HOST:PORT as well")
        return ()
    refuse_open(http, tokens)
    host = f"[{http.host}]" if ":" in http.host else http.host
    return "--http", f"{host}:{http.port}", *(() if tokens is None else ("--tokens", str(tokens.absolute())))


def _address(options: Mapping[str, Any]) -> Address:
    """Return where a process serves its metrics."""
    from spillway.agents.live.registry import Address  # noqa: PLC0415 - imports what help does without

    return Address(options["metrics_host"], options["metrics_port"] or 0)


def _ensure_topics(pipeline: Pipeline, settings: ClientSettings) -> None:
    """A process that runs alone sees to the topics itself; a supervisor has done it for its own."""
    from spillway.agents.live.topics import ensure  # noqa: PLC0415 - only here
    from spillway.topology.topics import topic_plan  # noqa: PLC0415

    ensure(settings, topic_plan(pipeline.spec))
