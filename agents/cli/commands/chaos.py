"""`spillway chaos`: workers of a served pipeline that stall, slow down and die on purpose."""

from __future__ import annotations

import signal
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from spillway.agents.chaos.schedule import Load, Often, schedule
from spillway.agents.chaos.strikes import Strikes, workers_of
from spillway.agents.cli.options import pipeline_argument, positive, run_dir_option
from spillway.agents.supervise.registry import entries
from spillway.lineage.errors import SpillwayError, UsageError
from spillway.topology.load import load

if TYPE_CHECKING:
    from pathlib import Path

    from spillway.topology.spec import PipelineSpec


def _often(context: click.Context, parameter: click.Parameter, value: str | None) -> Often | None:
    if value is None:
        return None
    every, colon, lasts = value.partition(":")
    if not colon:
        raise click.BadParameter(f"{value} is not EVERY:LASTS, as 1s:200ms")
    read = [positive(context, parameter, each) for each in (every, lasts)]
    return Often(*(each for each in read if each is not None))


def _once(context: click.Context, parameter: click.Parameter, value: str | None) -> Often | None:
    every = positive(context, parameter, value)
    return None if every is None else Often(every)


@click.command()
@pipeline_argument
@click.option("--stage", "stages", multiple=True, help="Only workers of this stage; may be repeated.")
@click.option("--slow", callback=_often, metavar="EVERY:LASTS", help="Stop a worker (SIGSTOP), and continue it.")
@click.option("--kill", callback=_once, metavar="EVERY", help="Kill a worker (SIGKILL).")
@click.option("--hog", callback=_often, metavar="EVERY:LASTS", help="Load the processor that a worker runs on.")
@click.option("--delay", callback=_often, metavar="EVERY:LASTS", help="Slow a worker down to half its speed.")
@click.option("--shuffles", type=click.IntRange(0), default=0, metavar="N", help="Background shuffles at any time.")
@click.option("--multitenancy", is_flag=True, help="Inference of other tenants, on every ninth worker.")
@click.option(
    "--slots",
    type=click.IntRange(1),
    metavar="N",
    help="Make a schedule for N workers, to include those that 'spillway change scale' adds later.  [default: current "
    "workers]",
)
@click.option("--duration", default="60s", callback=positive, metavar="TIME", help="How long to run.  [default: 60s]")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the schedule.")
@run_dir_option
def chaos(
    pipeline: Path,
    *,
    stages: tuple[str, ...],
    slots: int | None,
    duration: float,
    seed: int,
    run_dir: Path,
    **load_: Any,
) -> None:
    """Make workers of a served pipeline stall, slow down and die, to see what that costs.

    Each fault hits a random worker, once per EVERY on average, and lasts LASTS on average. The same seed and number of
    workers, or --slots, give the same schedule. Shuffles and multitenancy are the background load of the ParM paper,
    emulated by stopping workers for as long as a query would wait (sections 5.1 and 5.2.4; its usual load is --shuffles
    4).

    Only worker processes on this machine are affected, including parity workers, workers of copies, and replacements of
    killed workers. At the end, at Ctrl-C, and if this command itself is killed, all stopped workers continue.

    \b
    Example:
      spillway chaos pipeline.yaml --slow 1s:200ms --kill 20s --duration 5m --seed 3
      spillway chaos pipeline.yaml --shuffles 4
    """  # noqa: D301 - click's own marks
    wanted = Load(**load_)
    if wanted == Load():
        raise UsageError("no fault was named: give --slow, --kill, --hog, --delay, --shuffles or --multitenancy")
    spec = load(pipeline, profiled=False).spec
    chosen = _chosen(spec, stages)
    if not any(entry.alive() for entry in entries(run_dir, spec.name)):
        raise SpillwayError(f"{spec.name} is not served under {run_dir}: serve it first, or give its --run-dir")
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.default_int_handler)
    with Strikes(partial(workers_of, run_dir, spec.name, chosen)) as strikes:
        events = schedule(wanted, slots or len(strikes), duration, seed)
        click.echo(f"{len(events)} strikes on {len(strikes)} workers of {', '.join(chosen)} within {duration:g} s")
        strikes.play(events, time.monotonic(), threading.Event())
    click.echo(", ".join(f"{count} {kind}" for kind, count in sorted(strikes.done.items())) or "no worker was struck")


def _chosen(spec: PipelineSpec, stages: tuple[str, ...]) -> list[str]:
    """The stages whose workers are struck. Raises UsageError for one, or all, without worker processes."""
    chosen = [spec.stage(name) for name in stages] or spec.stages
    local = [each.name for each in chosen if each.workers.where == "process"]
    if not local or (stages and len(local) < len(chosen)):
        raise UsageError(
            f"{spec.name}: {', '.join(each.name for each in chosen if each.name not in local)} has no worker "
            "processes on this machine: write workers: {where: process} in the pipeline file"
        )
    return local
