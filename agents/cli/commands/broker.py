"""`spillway broker`: a local Kafka that outlives the command, for work on one machine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from agents.broker import EmbeddedBroker, stop_broker
from agents.broker.folder import DataFolder, RunningBroker
from agents.broker.ports import kafka_answers
from agents.broker.settings import DEFAULT_PORT
from agents.cli.options import broker_dir_option, cache_dir, json_option
from lineage.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

_data_dir = broker_dir_option("--data-dir")


@click.group()
def broker() -> None:
    """Start, stop, inspect or reset a local Kafka.

    It is one real Kafka node on loopback, in a process of its own. Several run side by side, one per data folder. The
    first start fetches Kafka (44 MB) into the user's cache folder; later ones need no network.

    \b
    Example:
      export SPILLWAY_BOOTSTRAP=$(spillway broker start --print-bootstrap)
    """  # noqa: D301 - click's own marks


@broker.command()
@_data_dir
@click.option(
    "--port", type=click.IntRange(1, 65535), help=f"Port to listen on.  [default: {DEFAULT_PORT}, else a free one]"
)
@click.option("--heap", default="512m", show_default=True, help="Memory for Kafka, as Java's -Xmx takes it.")
@click.option("--print-bootstrap", is_flag=True, help="Print nothing but host:port.")
@json_option
def start(data_dir: Path, port: int | None, heap: str, *, print_bootstrap: bool, as_json: bool) -> None:
    """Start the broker and return when it answers; fine where it runs already.

    \b
    Example: spillway broker start --data-dir /tmp/kafka --port 19092
    """  # noqa: D301
    folder = DataFolder(data_dir)
    running = folder.running()
    if running is not None and port not in {None, running.port}:
        raise UsageError(f"a broker already runs on {data_dir}, at {running.bootstrap}: stop it to change its port")
    if running is not None:
        _tell_started(folder, running, "already runs", print_bootstrap=print_bootstrap, as_json=as_json)
        return
    last = folder.last()
    started = EmbeddedBroker(
        data_dir,
        port=port or (last.port if last is not None else DEFAULT_PORT),
        strict_port=port is not None,
        detached=True,
        cache_dir=cache_dir(),
        heap=heap,
        notice=lambda text: click.echo(text, err=True),
    ).start()
    running = folder.running()
    assert running is not None
    how = f"is ready after {started.start_seconds:.1f} s"
    _tell_started(folder, running, how, print_bootstrap=print_bootstrap, as_json=as_json)


def _tell_started(
    folder: DataFolder, running: RunningBroker, how: str, *, print_bootstrap: bool, as_json: bool
) -> None:
    if as_json:
        click.echo(json.dumps(_facts(folder, running)))
    elif print_bootstrap:
        click.echo(running.bootstrap)
    else:
        click.echo(f"Kafka at {running.bootstrap} {how}\n  data  {folder.path}\n  log   {folder.log}")
        click.echo(f"Use it:  export SPILLWAY_BOOTSTRAP={running.bootstrap}")


@broker.command()
@_data_dir
@json_option
def stop(data_dir: Path, *, as_json: bool) -> None:
    """Stop the broker, keeping its data; fine where none runs."""
    stopped = stop_broker(data_dir)
    if as_json:
        click.echo(json.dumps({"stopped": stopped is not None}))
    else:
        path = DataFolder(data_dir).path
        click.echo(f"Kafka at {stopped.bootstrap} stopped" if stopped is not None else f"no broker runs on {path}")


@broker.command()
@_data_dir
@click.option("--print-bootstrap", is_flag=True, help="Print nothing but host:port.")
@json_option
@click.pass_context
def status(ctx: click.Context, data_dir: Path, *, print_bootstrap: bool, as_json: bool) -> None:
    """Say whether the broker runs, and where; exit code 1 where it does not."""
    folder = DataFolder(data_dir)
    folder.check_ours()
    running = folder.running()
    facts = _facts(folder, running)
    if as_json:
        click.echo(json.dumps(facts))
    elif running is None:
        click.echo(f"no broker runs on {folder.path}", err=True)
    elif print_bootstrap:
        click.echo(running.bootstrap)
    else:
        answers = "answers" if facts["answers"] else "does not answer"
        click.echo(f"Kafka at {running.bootstrap} {answers} (process {running.pid})")
        click.echo(f"  data  {folder.path}\n  log   {folder.log}")
    ctx.exit(0 if facts["answers"] else 1)


@broker.command()
@_data_dir
def reset(data_dir: Path) -> None:
    """Delete everything that a stopped broker kept: topics, records, offsets."""
    folder = DataFolder(data_dir)
    folder.wipe()
    click.echo(f"{folder.path} is empty")


def _facts(folder: DataFolder, running: RunningBroker | None) -> dict[str, object]:
    return {
        "running": running is not None,
        "answers": running is not None and kafka_answers(running.port),
        "bootstrap": running.bootstrap if running is not None else None,
        "pid": running.pid if running is not None else None,
        "data_dir": str(folder.path),
        "log": str(folder.log),
    }
