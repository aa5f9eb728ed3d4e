"""`spillway offline`: a file of queries of low priority, answered into another file."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from spillway.agents.cli.cluster import Source, from_source
from spillway.agents.cli.options import pipeline_argument
from spillway.agents.supervise.serving import require_served
from spillway.producers.client import Client
from spillway.producers.offline.job import CHUNK

if TYPE_CHECKING:
    from spillway.producers.offline.job import Progress

_CONNECT_SECONDS: Final = 10.0
_SAID: Final = 10.0  # seconds between two lines where no terminal shows them
_PERCENT: Final = 100.0


@click.command()
@pipeline_argument
@click.argument("inputs", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("outputs", type=click.Path(dir_okay=False, path_type=Path))
@from_source
@click.option("--app", metavar="NAME", help="Of a stage with variants: the application.  [default: the stage's]")
@click.option("--accuracy", metavar="SHARE", help="Of a stage with variants: at least this, as .95 or 95%.")
@click.option("--model", metavar="NAME", help="Of a stage with variants: by this architecture.")
@click.option("--variant", metavar="NAME", help="Of a stage with variants: by this one.")
@click.option(
    "--chunk", type=click.IntRange(1, 256), default=CHUNK, show_default=True, help="Queries under way at a time."
)
def offline(source: Source, inputs: Path, outputs: Path, chunk: int, **needs: str | None) -> int:
    """Answer a file of queries in the time that online ones leave.

    INPUTS has a query's inputs a line, as JSON (see 'predict'), or is an .npz, whose arrays are cut along their first
    axis. OUTPUTS gets a line for each, in their order: {"row": 0, "outputs": ..} or {"row": 0, "error": ..}.

    A stage starts these queries only while no online one waits. The job pauses while online queries take more than 40 %
    of the time of a stage's workers, or their batches 1.2 times what the profile says, and tells so. What was stopped
    or killed goes on where it was when the same command is given again; OUTPUTS.job has what it needs for that. The
    exit code is 1 if any row that was written has an error.

    \b
    Example: spillway offline pipeline.yaml images.jsonl labels.jsonl --app digits --accuracy .9
    """  # noqa: D301 - click's own marks
    missing = require_served(source.settings, source.pipeline, source.run_dir)
    if missing:
        click.echo(missing, err=True)
    shown = _Shown()
    with Client(source.spec, source.settings, timeout=_CONNECT_SECONDS) as client:
        done = client.offline_query(inputs, outputs, chunk=chunk, progress=shown.show, **needs)
    shown.end(done)
    return 1 if done.errors else 0


class _Shown:
    """Progress on the error stream: one line that changes on a terminal, elsewhere a line now and then."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._began = self._said = time.monotonic()
        self._paused = ""

    def show(self, at: Progress) -> None:
        now = time.monotonic()
        changed = bool(at.paused) != bool(self._paused)
        self._paused = at.paused
        if changed and at.paused:
            self._line(f"pauses: {at.paused}")
        elif changed:
            self._line("goes on")
        elif self._terminal:
            click.echo(f"\r\x1b[K{self._text(at)}", err=True, nl=False)
        elif now - self._said >= _SAID:
            self._said = now
            click.echo(self._text(at), err=True)

    def end(self, at: Progress) -> None:
        self._line(self._text(at))

    def _line(self, text: str) -> None:
        click.echo(("\r\x1b[K" if self._terminal else "") + text, err=True)

    def _text(self, at: Progress) -> str:
        share = _PERCENT * at.written / at.rows if at.rows else _PERCENT
        rate = (at.written - at.before) / max(time.monotonic() - self._began, 1e-3)
        told = [f"{at.written:,} of {at.rows:,} rows ({share:.0f} %)", f"{rate:.1f}/s"]
        told += [f"{at.before:,} of them from before"] if at.before else []
        told += [f"{at.errors:,} errors"] if at.errors else []
        told += [f"{at.handed_back:,} asked again"] if at.handed_back else []
        told += [f"paused for {at.paused_seconds:.0f} s"] if at.paused_seconds >= 1 else []
        told += ["paused"] if at.paused else []
        return ", ".join(told)
