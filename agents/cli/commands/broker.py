"""`spillway broker`: a local Kafka that outlives the command, for work on one machine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from spillway.agents.broker import EmbeddedCluster, stop_broker
from spillway.agents.broker.cluster import HEAP, NODE_HEAP, SIZES
from spillway.agents.broker.folder import DataFolder
from spillway.agents.broker.ports import kafka_answers
from spillway.agents.broker.settings import DEFAULT_PORT
from spillway.agents.cli.options import LazyGroup, broker_dir_option, cache_dir, confirmed, json_option
from spillway.lineage.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

_data_dir = broker_dir_option("--broker-dir", "data_dir")


@click.group(cls=LazyGroup, texts={"topics": "List a pipeline's topics and who may write them, or delete them."})
def broker() -> None:
    """Start, stop, inspect or reset a local Kafka, and list or delete a pipeline's topics on any.

    It is one real Kafka node on loopback, in a process of its own, or with --nodes 3 a cluster of three that survives
    the loss of any one node. Several run side by side, one per data folder. The first start fetches Kafka (44 MB) into
    the user's cache folder; later ones need no network.

    \b
    Example:
      export SPILLWAY_BOOTSTRAP=$(spillway broker start --print-bootstrap)
    """  # noqa: D301 - click's own marks


@broker.command()
@_data_dir
@click.option(
    "--port", type=click.IntRange(1, 65535), help=f"Port to listen on.  [default: {DEFAULT_PORT}, else a free one]"
)
@click.option(
    "--nodes",
    type=click.Choice([str(size) for size in SIZES]),
    help="Kafka nodes: with 3, records have three copies, and are acknowledged once two disks have them.  [default: "
    "as in DIR, else 1]",
)
@click.option(
    "--heap", help=f"Memory for each node, as Java's -Xmx takes it.  [default: {HEAP}; of 3 nodes {NODE_HEAP} each]"
)
@click.option("--print-bootstrap", is_flag=True, help="Print nothing but host:port.")
@json_option
def start(
    data_dir: Path, port: int | None, nodes: str | None, heap: str | None, *, print_bootstrap: bool, as_json: bool
) -> None:
    """Start the broker and return when it answers; does nothing if it already runs.

    If only some nodes of a cluster run, the others are started.

    \b
    Example: spillway broker start --broker-dir /tmp/kafka --port 19092
    """  # noqa: D301
    folder = DataFolder(data_dir)
    running = folder.brokers()
    if running and port not in {None, running[0].port}:
        raise UsageError(f"a broker already runs on {data_dir}, at {folder.bootstrap()}: stop it to change its port")
    cluster = EmbeddedCluster(
        data_dir,
        nodes=int(nodes) if nodes is not None else None,
        port=port or DEFAULT_PORT,
        strict_port=port is not None,
        detached=True,
        cache_dir=cache_dir(),
        heap=heap,
        notice=lambda text: click.echo(text, err=True),
    )
    how = "already runs"
    if len(running) < len(cluster.nodes):
        how = f"is ready after {cluster.start().start_seconds:.1f} s"
    if as_json:
        click.echo(json.dumps(_facts(folder)))
    elif print_bootstrap:
        click.echo(folder.bootstrap())
    else:
        click.echo(f"Kafka at {folder.bootstrap()} {how}\n{_places(folder)}")
        click.echo(f"Use it:  export SPILLWAY_BOOTSTRAP={folder.bootstrap()}")


@broker.command()
@_data_dir
@json_option
def stop(data_dir: Path, *, as_json: bool) -> None:
    """Stop the broker, keeping its data; does nothing if none runs."""
    bootstrap = DataFolder(data_dir).bootstrap()
    stopped = stop_broker(data_dir)
    if as_json:
        click.echo(json.dumps({"stopped": bool(stopped)}))
    else:
        path = DataFolder(data_dir).path
        click.echo(f"Kafka at {bootstrap} stopped" if stopped else f"no broker runs on {path}")


@broker.command()
@_data_dir
@click.option("--print-bootstrap", is_flag=True, help="Print nothing but host:port.")
@json_option
@click.pass_context
def status(ctx: click.Context, data_dir: Path, *, print_bootstrap: bool, as_json: bool) -> None:
    """Show whether the broker runs, and where; exit code 1 if it, or one of its nodes, does not run."""
    folder = DataFolder(data_dir)
    folder.check_ours()
    facts = _facts(folder)
    if as_json:
        click.echo(json.dumps(facts))
    elif not facts["running"]:
        click.echo(f"no broker runs on {folder.path}", err=True)
    elif print_bootstrap:
        click.echo(facts["bootstrap"])
    else:
        for node, (where, pid, answers) in enumerate(map(_state, folder.nodes()), 1):
            how = "answers" if answers else "does not run" if pid is None else "does not answer"
            name = "Kafka" if len(folder.nodes()) == 1 else f"node {node}"
            click.echo(f"{name} at {where} {how}" + (f" (process {pid})" if pid is not None else ""))
        click.echo(_places(folder))
    ctx.exit(0 if facts["answers"] else 1)


@broker.command()
@_data_dir
@click.option("--yes", is_flag=True, help="Do not ask.")
def reset(data_dir: Path, *, yes: bool) -> None:
    """Delete everything that a stopped broker kept: topics, records, offsets."""
    folder = DataFolder(data_dir)
    folder.check_stopped()
    if folder.path.exists():
        confirmed(f"delete all that is in {folder.path}", yes=yes)
    folder.wipe()
    click.echo(f"{folder.path} is empty")


def _state(node: DataFolder) -> tuple[str | None, int | None, bool]:
    """Where a node is, or was last, its process while it runs, and whether it answers."""
    last, running = node.last(), node.running()
    pid = running.pid if running is not None else None
    return last.bootstrap if last is not None else None, pid, running is not None and kafka_answers(running.port)


def _places(folder: DataFolder) -> str:
    logs = [node.log for node in folder.nodes()]
    return "\n".join([f"  data  {folder.path}", *(f"  log   {log}" for log in logs)])


def _facts(folder: DataFolder) -> dict[str, object]:
    """What a script may want to know; of a cluster `pid` and `log` are its first node's, and `nodes` tells of all."""
    states = list(map(_state, folder.nodes()))
    return {
        "running": any(pid is not None for _, pid, _ in states),
        "answers": all(answers for _, _, answers in states),
        "bootstrap": folder.bootstrap(),
        "pid": states[0][1],
        "data_dir": str(folder.path),
        "log": str(folder.nodes()[0].log),
        "nodes": [
            {"bootstrap": where, "pid": pid, "answers": answers, "log": str(node.log)}
            for (where, pid, answers), node in zip(states, folder.nodes(), strict=True)
        ],
    }
