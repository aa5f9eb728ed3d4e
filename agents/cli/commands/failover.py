"""`spillway change failover`: a planned switch of a stateful stage's primary, without loss."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from spillway.agents.cli.cluster import Source, from_source
from spillway.agents.cli.options import json_option, timeout_option, why_option


@click.command()
@from_source
@click.argument("stage")
@click.option("--shard", type=click.IntRange(0), default=0, show_default=True, help="Which shard of the stage.")
@why_option
@timeout_option("60s")
@json_option
def failover(source: Source, stage: str, shard: int, why: str, timeout: float, *, as_json: bool) -> None:
    """Make a backup of a stateful STAGE take over from its primary, and print how long that took.

    For planned switches: before a machine is removed, or as a test. Nothing is lost, and queries in progress are
    answered. The exit code is 1 if no backup sends heartbeats, or none takes over in time; the pipeline then continues
    unchanged.

    \b
    Example: spillway change failover pipeline.yaml detect --shard 1 --why "new kernel on this machine"
    """  # noqa: D301 - click's own marks
    from spillway.agents.live.operator.switch import Switch, check_place  # noqa: PLC0415 - Kafka only where there is something to do
    from spillway.agents.live.sizes import writer  # noqa: PLC0415 - the same

    place = check_place(source.spec, stage, shard)
    with Switch(source.settings, source.spec, place) as switch:
        switch.await_backup()
        done = switch.switch(writer(), why, timeout)
    if as_json:
        click.echo(json.dumps(asdict(done)))
        return
    click.echo(
        f"{stage}.{shard}: {done.new} has taken over from {done.old} (epoch {done.old_epoch} to {done.epoch}) in "
        f"{1000 * done.seconds:.0f} ms"
    )
