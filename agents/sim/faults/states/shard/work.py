"""What a model makes of a batch: results, the state after it, and what the history has to know of both."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agents.core.actions import Failed
from agents.sim.faults.states.processes.messages import item_of, result_of
from agents.sim.faults.states.world import model
from agents.sim.faults.states.world.history import Made
from lineage import reasons

if TYPE_CHECKING:
    from agents.core.actions import Result
    from agents.core.batching import Batch
    from agents.core.request import Request
    from agents.sim.faults.broker import Place
    from agents.sim.faults.states.world.state_world import StateWorld


class Done(NamedTuple):
    """A batch that was computed."""

    results: list[Result]
    after: model.State
    changes: bool
    made: Made


def computed(world: StateWorld, place: Place, state: model.State, batch: Batch) -> Done:
    stage, scenario = place[0], world.scenario
    nonce = 0 if scenario.deterministic else world.random.getrandbits(32)
    keys = scenario.keys_of(stage)
    results: list[Result] = []
    good: list[Request] = []
    items: list[model.Item] = []
    for request in batch.requests:
        if model.raises(stage, request.request_id, scenario.poison):
            results.append(Failed(reasons.MODEL_RAISED, "scripted"))
        elif scenario.chance and world.random.random() < scenario.chance:
            results.append(Failed(reasons.MODEL_RAISED, "by chance"))
        else:
            good.append(request)
            items.append(item_of(request))
            results.append(result_of(world, stage, model.compute(stage, state, items[-1], nonce, keys)))
    after = model.update(stage, state, items, nonce, keys)
    taken = tuple(
        (request.request_id, tuple((part.partition, part.offset) for part in request.parts)) for request in good
    )
    changes = any(model.changes(stage, item) for item in items)
    return Done(results, after, changes, Made(state.digest, after.digest, taken, nonce))
