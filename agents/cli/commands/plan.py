"""`spillway plan`: what a pipeline needs, before it is served."""

from __future__ import annotations

import click

from spillway.agents.cli.options import LazyGroup

STEPS = {
    "profile": "Measure a pipeline's models over batch sizes.",
    "provision": "Find the cheapest hardware and sizes that keep the SLO.",
}


@click.group(cls=LazyGroup, texts=STEPS)
def plan() -> None:
    """Plan a pipeline: measure its models, then find the cheapest sizes that keep the SLO.

    \b
    Example: spillway plan provision pipeline.yaml gamma:150,1 --duration 600 --hardware hardware.yaml -o plan.yaml
    """  # noqa: D301 - click's own marks
