"""`spillway train`: what learns from data, apart from or beside what serves."""

from __future__ import annotations

import click

from spillway.agents.cli.options import LazyGroup

TRAININGS = {
    "parity": "Train the parity models of a stage.",
    "evaluate": "Grade what the parity models of a stage reconstruct.",
    "features": "Retrain a Velox model's features from observations, and switch to better ones.",
    "feedback": "Send feedback (a true answer) to a learner of a running pipeline.",
}


@click.group(cls=LazyGroup, texts=TRAININGS, modules={"evaluate": "parity", "features": "generations"})
def train() -> None:
    """Train parity models and a Velox model's features, and send feedback to learners.

    \b
    Example:
      spillway train parity examples/parm/digits.yaml mlp --data examples.parm.data:training
      spillway train feedback pipeline.yaml taste 1.0 --key ada --wait
    """  # noqa: D301 - click's own marks
