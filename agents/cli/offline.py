"""A file of queries of low priority, answered into another file: what `spillway predict --offline` does."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

import click

from spillway.agents.supervise.serving import require_served
from spillway.producers.client import Client

if TYPE_CHECKING:
    from pathlib import Path

    from spillway.agents.cli.cluster import Source
    from spillway.producers.offline.job import Progress

_CONNECT_SECONDS: Final = 10.0
_SAID: Final = 10.0  # seconds between two lines where no terminal shows them
_PERCENT: Final = 100.0


def answer(source: Source, inputs: Path, outputs: Path, chunk: int, **needs: str | None) -> int:
    """Answer the file of queries `inputs` into `outputs`, and return the exit code: 1 if a row has an error."""
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
