"""Pipelines as commands read them: checked, and with profiles that still speak of their models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agents.profiling.conditions import refuse_stale
from topology.load import load

if TYPE_CHECKING:
    from pathlib import Path

    from topology.load import Pipeline


def load_fresh(path: Path) -> Pipeline:
    """Read a pipeline file. Raises SpecError with all problems, a stale profile among them, each with its fix."""
    pipeline = load(path)
    refuse_stale(pipeline)
    return pipeline
