"""A stage with a state that nobody replicates: it keeps it in memory alone (`replication: none`).

After a crash it begins with the initial state and takes all its inputs again, as recovery by replay alone does (HAMS,
Figs. 2 and 3). Whoever comes behind it recognises the repetitions. With a model that draws nothing this gives the same
state and the same messages; with one that draws, others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agents.sim.faults.states.processes.stateless import StatelessProcess
from agents.sim.faults.states.world import model

if TYPE_CHECKING:
    from agents.sim.faults.states.world.state_world import StateWorld


class BareProcess(StatelessProcess):
    """One incarnation. It takes requests one by one, so that batches come out the same."""

    instances = 1

    def __init__(self, world: StateWorld, stage: str, replica: int) -> None:
        self.state = model.State()
        super().__init__(world, stage, replica)

    def _load(self, partition: int, committed: int, note: str) -> None:  # noqa: ARG002 (as others do)
        super()._load(partition, 0, "")

    def value(self, item: model.Item) -> str:
        nonce = 0 if self.world.scenario.deterministic else self.world.random.getrandbits(32)
        value = model.compute(self.stage, self.state, item, nonce)
        self.state = model.update(self.stage, self.state, [item], nonce)
        return value
