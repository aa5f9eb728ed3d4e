"""`spillway record`: tap what goes in and out of a running pipeline into Avro container files."""

from __future__ import annotations

import json
import math
import signal
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING

import click

from spillway.agents.cli.cluster import Source, from_source
from spillway.agents.cli.options import FOLDER, json_option, positive
from spillway.agents.cli.summary import progress_bar
from spillway.agents.core.policies import effective
from spillway.agents.live.sizes import Sizes
from spillway.agents.supervise.registry import ServeEntry
from spillway.agents.supervise.serving import NotServedError, require_served
from spillway.producers.recording import About, RecordingWriter
from spillway.producers.recording.tap import Tap
from spillway.topology.quantities import show_duration
from spillway.topology.sizes import key_of
from spillway.topology.topics import egress, ingress

if TYPE_CHECKING:
    from pathlib import Path

    from spillway.producers.connection import ClientSettings
    from spillway.topology.load import Pipeline

INTERRUPTED = 130
_MEBIBYTE = 1 << 20


@click.command()
@from_source
@click.option(
    "-o", "--output", type=FOLDER, required=True, metavar="DIR", help="New or empty directory for the recording."
)
@click.option("--duration", callback=positive, metavar="TIME", help="Also as 5min.  [default: until Ctrl-C]")
@click.option(
    "--rotate-mb",
    type=click.IntRange(1),
    default=256,
    show_default=True,
    metavar="MB",
    help="Start a new file at this size.",
)
@json_option
def record(source: Source, output: Path, duration: float | None, rotate_mb: int, *, as_json: bool) -> int:
    """Record the queries and outcomes of a running pipeline.

    Reads the pipeline's ingress and egress from now on, with no effect on the pipeline. If the recorder is killed, at
    most the last second is lost. 'spillway replay' takes the directory in place of a trace. Ctrl-C ends a recording
    without --duration (exit code 0), and interrupts one with it (130); the files are whole either way.

    \b
    Example:
      spillway record examples/hello/pipeline.yaml -o monday --duration 600
    """  # noqa: D301 - click's own marks
    settings, name = source.settings, source.spec.name
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    workers: dict[str, int] = {}
    try:
        missing = require_served(settings, source.pipeline, source.run_dir)
        workers = ordered(settings, source.pipeline)
    except NotServedError as error:  # whoever starts it later finds the recorder there
        missing = str(error)
    if missing:
        click.echo(missing, err=True)
    with closing(Tap(settings, [ingress(name), egress(name)])) as tap:
        about = _about(source.pipeline, source.run_dir, workers)
        with RecordingWriter(output, about, rotate_bytes=rotate_mb * _MEBIBYTE) as writer:
            _copy(tap, writer, f"recording {name} into {output}", duration, stopped)
    _summarise(output, writer.counts, tap.unreadable, as_json=as_json)
    return INTERRUPTED if duration is not None and stopped.is_set() else 0


def _copy(tap: Tap, writer: RecordingWriter, what: str, duration: float | None, stopped: threading.Event) -> None:
    """Record for `duration` seconds, showing how many have passed; without a duration until stopped."""
    if duration is None:
        click.echo(f"{what}, until Ctrl-C", err=True)
        tap.copy(writer, math.inf, stopped.is_set)
        return
    click.echo(f"{what}, for {show_duration(duration)}", err=True)
    began = time.monotonic()
    with progress_bar("recording, seconds", math.ceil(duration)) as show:

        def over() -> bool:
            show(int(time.monotonic() - began))
            return stopped.is_set()

        tap.copy(writer, began + duration, over)


def ordered(settings: ClientSettings, pipeline: Pipeline) -> dict[str, int]:
    """The workers of stages that have been scaled away from their file."""
    with Sizes(settings, pipeline.spec.name) as table:
        newest = table.newest()
    sizes = {stage.name: (newest.get(key_of(stage.name)), stage) for stage in pipeline.spec.stages}
    return {
        name: size.count
        for name, (size, stage) in sizes.items()
        if size is not None and not stage.stateful and size.count not in (stage.worker_count, 0)
    }


def _about(pipeline: Pipeline, run_dir: Path, workers: dict[str, int]) -> About:
    spec = pipeline.spec
    supervisor = ServeEntry.running(run_dir, spec.name)
    instead = None if supervisor is None else supervisor.policy
    return About(
        pipeline=spec.name,
        spec=pipeline.path.read_text(encoding="utf-8"),
        ingress=ingress(spec.name),
        egress=egress(spec.name),
        fronts={stage.name: stage.workers.fronts for stage in spec.stages},
        policies=effective(spec, instead),
        started=time.time(),
        period=None if supervisor is None else supervisor.plan_period,
        workers=workers,
    )


def _summarise(output: Path, counts: dict[str, int], unreadable: int, *, as_json: bool) -> None:
    queries = sum(number for topic, number in counts.items() if topic.endswith(".ingress"))
    outcomes = sum(counts.values()) - queries
    size = sum(file.stat().st_size for file in output.iterdir())
    if as_json:
        summary = {"directory": str(output), "queries": queries, "outcomes": outcomes, "unreadable": unreadable}
        click.echo(json.dumps(summary | {"bytes": size}))
        return
    click.echo(f"{queries} queries, {outcomes} outcomes, {size / _MEBIBYTE:.1f} MB in {output}")
    if unreadable:
        click.echo(f"{unreadable} messages left out: their header names are not text", err=True)
