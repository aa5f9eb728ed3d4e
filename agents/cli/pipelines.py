"""Pipelines as commands read them: checked, and with a warning of profiles that were measured of something else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agents.profiling.conditions import stale_profiles
from topology.load import load

if TYPE_CHECKING:
    from pathlib import Path

    from topology.load import Pipeline


def load_warned(path: Path) -> Pipeline:
    """Read a pipeline file, and warn of each stale profile on stderr. Raises SpecError with all problems."""
    pipeline = load(path)
    for stale in stale_profiles(pipeline):
        click.echo(f"warning: {stale}", err=True)
    return pipeline
