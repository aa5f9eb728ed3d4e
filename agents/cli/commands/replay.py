"""`spillway replay`: a live pipeline under a trace or a recording, and the report."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

from spillway.agents.cli.cluster import find_cluster
from spillway.agents.cli.commands.serve import ONE_THREAD_EACH
from spillway.agents.cli.metering import StageMeter
from spillway.agents.cli.options import (
    FACTOR,
    FILE,
    bootstrap_option,
    broker_dir_option,
    cache_dir,
    client_config_option,
    given,
    html_option,
    json_option,
    output_option,
    pipeline_argument,
    plan_period_option,
    positive,
    run_dir_option,
    seconds,
    trace_duration_option,
)
from spillway.agents.cli.policies import POLICY, load_warned, require_policies
from spillway.agents.cli.summary import FOLLOWED, deliver, progress_bar
from spillway.agents.core.policies import DEFAULT
from spillway.agents.supervise.registry import ServeEntry
from spillway.agents.supervise.serving import require_served
from spillway.lineage.errors import UsageError
from spillway.producers.client.exchange import Exchange
from spillway.producers.connection import ClientSettings
from spillway.producers.load import generator as loads
from spillway.producers.load import traces
from spillway.producers.load.generator import Pace, run_load
from spillway.producers.load.payloads import find_payload, signature_payload
from spillway.producers.load.tally import Witness
from spillway.producers.recording import read_recording
from spillway.producers.report import Report

if TYPE_CHECKING:
    from spillway.producers.load.generator import Load
    from spillway.producers.load.tally import LoadResult
    from spillway.producers.report import StageTotals
    from spillway.topology.load import Pipeline

_LINGER = 0.001  # of queries under load: they travel together, at little cost to each


@click.command()
@pipeline_argument
@click.argument("trace")
@click.option("--attach", is_flag=True, help="Use the running pipeline instead of starting one.")
@bootstrap_option
@client_config_option
@broker_dir_option("--broker-dir")
@run_dir_option
@click.option(
    "--slo",
    callback=positive,
    metavar="TIME",
    help="Use this SLO, not the pipeline's or a recording's deadlines; also as 400ms.",
)
@click.option("--scale", type=FACTOR, default=1.0, show_default=True, help="Multiply the number of requests.")
@click.option("--speed", type=FACTOR, default=1.0, show_default=True, help="Multiply the speed of the trace.")
@trace_duration_option
@click.option("--policy", type=POLICY, help="Use this policy, not the pipeline's; with parameters as pard:quantile=.2.")
@plan_period_option
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of arrivals and payloads.")
@click.option(
    "--payload",
    metavar="MODULE:FUNCTION",
    help="Makes each query's inputs, given its index and a numpy generator.  [default: after the stages' signatures]",
)
@click.option("--key", metavar="INPUT", help="The input that is each query's key.  [default: the request's id]")
@click.option(
    "--grace",
    callback=seconds,
    default="10",
    show_default=True,
    metavar="TIME",
    help="Wait this long after the deadline for an outcome before the query counts as missing.",
)
@output_option
@click.option("--samples", type=FILE, metavar="FILE.npz", help="File to write each query's times and end to.")
@html_option
@json_option
def replay(pipeline: Path, trace: str, **options: Any) -> int:
    """Drive a live pipeline with TRACE, open loop, and report.

    Starts PIPELINE, and a local Kafka if none is named, and stops them afterwards; with --attach it uses the running
    pipeline. TRACE is a CSV file (second,requests or t,..., .gz too), a recording's directory, or constant:RATE,
    poisson:RATE, gamma:RATE,CV with --duration. Every query is sent when it is due, independently of the others;
    latency counts from then. The exit code is 1 if the pipeline failed, or a query is missing.

    \b
    Example:
      spillway replay examples/video/pipeline.yaml trace.csv --speed 2 -o out.json
      spillway replay examples/hello/pipeline.yaml poisson:50 --duration 10 --attach --json
    """  # noqa: D301 - click's own marks
    chosen = SimpleNamespace(**options)
    loaded = load_warned(pipeline)
    if chosen.attach and chosen.policy is not None:
        raise UsageError("--policy cannot be changed while a pipeline is served: leave out --policy or --attach")
    if chosen.attach and chosen.plan_period is not None:
        raise UsageError(
            "--plan-period cannot be changed while a pipeline is served: leave out --plan-period or --attach"
        )
    require_policies(loaded, chosen.policy)
    made = _load(loaded, trace, chosen)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what was started here is stopped
    with ExitStack() as stack:
        settings = _attached(loaded, chosen) if chosen.attach else _started(loaded, chosen, stack)
        here = ServeEntry.running(chosen.run_dir, loaded.spec.name)
        witness = Witness(every=max(1, len(made.due) // FOLLOWED))
        result, stages = _run(loaded, settings, made, chosen, witness)
    report = _report(loaded, trace, chosen, result, stages)
    if chosen.samples is not None:
        result.save(chosen.samples)
    deliver(report, chosen.output, as_json=chosen.as_json)
    if chosen.html is not None:
        from spillway.agents.pages import run_report, visits  # noqa: PLC0415 - takes a second to import

        series = visits.live_series(result, witness, loaded.graph, report.slo_ms / 1000)
        run_report.write(chosen.html, report, *series)
    for (kind, stage, reason), count in sorted(result.reasons.items()):
        click.echo(f"{kind} at {stage}: {count} {reason}", err=True)
    if report.outcomes.missing:
        why = ", ".join(f"{count} {name}" for name, count in sorted(result.errors.items()))
        click.echo(f"error: {report.outcomes.missing} of {report.requests} queries have no outcome ({why})", err=True)
        if here is not None and chosen.attach and ServeEntry.running(chosen.run_dir, loaded.spec.name) is None:
            click.echo(f"{loaded.spec.name} was stopped meanwhile", err=True)
        return 1
    return 0


def _load(pipeline: Pipeline, trace: str, chosen: SimpleNamespace) -> Load:
    drawn: Any = {name: getattr(chosen, name) for name in ("seed", "scale", "speed", "duration")}
    if Path(trace).is_dir():
        if chosen.payload is not None:
            raise UsageError("--payload cannot be used with a recording, which has its own inputs")
        if chosen.key is not None:
            raise UsageError("--key cannot be used with a recording, whose queries have keys")
        recording = read_recording(Path(trace), _say)
        if recording.about.pipeline != pipeline.spec.name:
            _say(f"{trace} is a recording of pipeline {recording.about.pipeline!r}, not of {pipeline.spec.name!r}")
        return loads.recorded(recording, budgets=chosen.slo is None, **drawn)
    due = traces.arrivals(trace, **drawn)
    payload = signature_payload(pipeline.spec) if chosen.payload is None else find_payload(chosen.payload)
    return loads.generated(due, payload, seed=chosen.seed, limits=pipeline.spec.limits.merged(), key=chosen.key)


def _attached(pipeline: Pipeline, chosen: SimpleNamespace) -> ClientSettings:
    spec = pipeline.spec
    settings = find_cluster(chosen.bootstrap, chosen.client_config, run_dir=chosen.run_dir, pipeline=spec.name)
    missing = require_served(settings, pipeline, chosen.run_dir)
    if missing:
        _say(missing)
    supervisor = ServeEntry.running(chosen.run_dir, pipeline.spec.name)
    if supervisor is not None and supervisor.plan_period is not None:
        policies, period = _policies(pipeline, supervisor.policy), f"{supervisor.plan_period:g} s"
        _say(f"{spec.name} is served under {policies}; its stages exchange their state every {period}")
    return settings


def _started(pipeline: Pipeline, chosen: SimpleNamespace, stack: ExitStack) -> ClientSettings:
    """Start the pipeline, and the broker if it needs one; both end with the stack."""
    from spillway.agents.supervise.kept_broker import kept_broker  # noqa: PLC0415 - an attached replay does without these
    from spillway.agents.supervise.service import ServiceSettings, served  # noqa: PLC0415

    bootstrap, client_config = chosen.bootstrap, chosen.client_config
    keep: Any = lambda _now: None  # noqa: E731 - replaced below where there is something to keep
    local = given("broker_dir") and not given("bootstrap")  # told here, it wins over the environment
    if local or (bootstrap is None and client_config is None):
        broker = stack.enter_context(kept_broker(chosen.broker_dir, cache_dir=cache_dir(), say=_say))
        bootstrap, client_config, keep = broker.bootstrap, None, broker.keep
    settings = ClientSettings.load(bootstrap, client_config)
    service = ServiceSettings(
        pipeline=pipeline,
        cluster=settings,
        run_dir=chosen.run_dir.absolute(),
        client_config=client_config,
        policy=chosen.policy,
        plan_period=chosen.plan_period,
        environment={**dict.fromkeys(ONE_THREAD_EACH, "1"), **os.environ},
    )
    stack.enter_context(served(service, say=_say, keep=keep))
    return settings


def _run(
    pipeline: Pipeline, settings: ClientSettings, made: Load, chosen: SimpleNamespace, witness: Witness
) -> tuple[LoadResult, dict[str, StageTotals] | None]:
    spec = pipeline.spec
    with closing(Exchange(settings, spec.name, linger=_LINGER, limits=spec.limits.merged())) as exchange:
        meter = StageMeter(chosen.run_dir, spec)
        with progress_bar("replaying", len(made.due)) as show:
            slo = spec.slo if chosen.slo is None else chosen.slo
            observe = None if chosen.html is None else witness.observe
            pace = Pace(slo=slo, grace=chosen.grace, progress=lambda _sent, ended: show(ended), observe=observe)
            result = run_load(exchange, made, pace)
        return result, meter.totals()


def _report(
    pipeline: Pipeline, trace: str, chosen: SimpleNamespace, result: LoadResult, stages: dict[str, StageTotals] | None
) -> Report:
    spec = pipeline.spec
    if stages is None:
        _say(f"not every stage has metrics under {chosen.run_dir}: the stages' figures come only from the outcomes")
        workers = {stage.name: stage.worker_count for stage in spec.stages}
        stages = result.stage_totals([stage.name for stage in spec.stages], workers)
    supervisor = ServeEntry.read(chosen.run_dir, spec.name) if chosen.attach else None
    instead = chosen.policy if supervisor is None else supervisor.policy
    return Report.build(
        pipeline=spec.name,
        policy=_policies(pipeline, instead),
        trace=trace,
        slo=spec.slo if chosen.slo is None else chosen.slo,
        duration=float(result.due[-1]) if chosen.duration is None else chosen.duration,
        due=result.due,
        finished=result.finished,
        kind=result.kind,
        spent=result.spent,
        slip=result.sent - result.due,
        duplicates=result.duplicates,
        stages=stages,
        emulated=any(stage.emulated is not None for stage in spec.stages),
    )


def _policies(pipeline: Pipeline, instead: str | None) -> str:
    return "/".join(dict.fromkeys(instead or stage.policy or DEFAULT for stage in pipeline.spec.stages))


def _say(text: str) -> None:
    click.echo(text, err=True)
