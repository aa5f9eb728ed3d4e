"""An input whose logs have every offset: nothing of it is ever stopped."""

from spillway.agents.run.inputs import OF_STATES, Inputs
from spillway.lineage.ports import Bounds


def endless() -> Inputs:
    inputs = Inputs("p.a", OF_STATES, {})

    async def bounds(partitions: frozenset[int]) -> dict[int, Bounds]:
        return dict.fromkeys(partitions, Bounds(0, 1 << 60))

    inputs.bounds = bounds
    return inputs
