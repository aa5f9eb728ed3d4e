"""`spillway change`: what can be other while a pipeline is served."""

from __future__ import annotations

import click

from spillway.agents.cli.options import LazyGroup

CHANGES = {
    "scale": "Give a stage more workers, or fewer.",
    "ensemble": "Change the members and the selection of an ensemble.",
    "failover": "Make a backup of a stateful stage take over, as a planned switch.",
}


@click.group(cls=LazyGroup, texts=CHANGES)
def change() -> None:
    """Change a pipeline while it is served.

    \b
    Example: spillway change scale pipeline.yaml detect 4
    """  # noqa: D301 - click's own marks
