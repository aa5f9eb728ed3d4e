"""What a model makes of a batch: results, the state after it, and what the history has to know of both."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agents.core.actions import Failed, Ok
from agents.sim.faults.states.world import model
from agents.sim.faults.states.world.history import Made, Payload
from lineage import reasons
from lineage.marks import Mark, Version
from lineage.message import PREDICTION, Outcome

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


def computed(world: StateWorld, place: Place, state: model.State, batch: Batch, version: Version) -> Done:
    """Compute a batch, which makes this version of the state."""
    stage, scenario = place[0], world.scenario
    nonce = 0 if scenario.deterministic else world.random.getrandbits(32)
    mark = Mark(*place, version)
    results: list[Result] = []
    good: list[Request] = []
    for request in batch.requests:
        if model.poisoned(stage, request.request_id, scenario.poison) == "model":
            results.append(Failed(reasons.MODEL_RAISED, "scripted"))
        else:
            good.append(request)
            results.append(_result(world, mark, model.compute(stage, state, item_of(request), nonce)))
    items = [item_of(request) for request in good]
    after = model.update(stage, state, items, nonce)
    taken = tuple(
        (request.request_id, tuple((part.partition, part.offset) for part in request.parts)) for request in good
    )
    changes = any(model.changes(stage, item) for item in items)
    return Done(results, after, changes, Made(state.digest, after.digest, taken, nonce))


def _result(world: StateWorld, mark: Mark, value: str) -> Ok:
    """Send a value on its way; where the stage chooses, the value decides which."""
    payload = Payload(value, frozenset((mark,)))
    going = world.graph.successors[mark.stage]
    options = world.scenario.topology.choices.get(mark.stage)
    chosen = None if options is None else options[int(value[:8], 16) % len(options)]
    if chosen is not None:
        going = chosen
    if not going:
        return Ok({None: Outcome(PREDICTION, outputs={"value": payload}, stage=mark.stage)}, chosen)
    return Ok(dict.fromkeys(going, payload), chosen)


def item_of(request: Request) -> model.Item:
    """Give a request as the model sees it."""
    parts = sorted(request.parts, key=lambda part: part.predecessor)
    return model.Item(request.request_id, tuple(part.payload.value for part in parts))
