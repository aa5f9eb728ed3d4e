"""A stateful model run batch by batch, without a stage."""

from typing import Any, NamedTuple

from spillway.agents.models.stateful import Machine


class Run(NamedTuple):
    outputs: list[Any]  # of each batch
    state: Any  # of a keyed model: keys to states
    version: int


def run(model, batches, *, state=None, version=0, verify=False):
    """From `state`, which is given away, or from the model's own beginning."""
    machine = Machine("replay", model, state, version, verify=verify)
    return Run(machine.play(batches), machine.state, machine.version)
