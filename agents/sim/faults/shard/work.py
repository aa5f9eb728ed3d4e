"""What a model makes of a batch, and how a state is made again from a copy and the batches after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agents.core.actions import Failed
from agents.sim.faults.processes.messages import item_of, result_of
from agents.sim.faults.world import model
from agents.sim.faults.world.broker import INGRESS
from agents.sim.faults.world.history import Made
from lineage import reasons
from lineage.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agents.core.actions import Result
    from agents.core.batching import Batch
    from agents.core.request import Request
    from agents.sim.faults.shard.standby import Logged
    from agents.sim.faults.world.broker import Place
    from agents.sim.faults.world.model import State
    from agents.sim.faults.world.world import StateWorld
    from lineage.marks import Version
    from lineage.replication import Record


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


def replayed(world: StateWorld, place: Place, state: State, base: Version, entry: Logged | None) -> State:
    """Give the state at `base`, from the copy that its entry names; a model that draws draws anew."""
    if entry is None or entry.state_n >= base.n:
        return state
    keys = world.scenario.keys_of(place[0])
    for batch in entry.contents.batches:
        if entry.state_n < batch.n <= base.n:
            world.result.count("replayed")
            nonce = 0 if world.scenario.deterministic else world.random.getrandbits(32)
            state = model.update(place[0], state, items_of(world, place, batch.taken), nonce, keys)
    return state


def items_of(world: StateWorld, place: Place, taken: Iterable[Record]) -> list[model.Item]:
    """Give the requests of a batch as the model saw them: those whose records stand together are one.

    Raises CheckpointError where the input does not have them any more; the shard cannot go on then.
    """
    stage, shards = place[0], world.scenario.shards_of(place[0])
    topic = stage if world.graph.predecessors[stage] else INGRESS
    items: list[tuple[str, list[tuple[str, str]]]] = []
    for one in taken:
        record = next(world.broker.read((topic, one.partition), one.offset, one.offset + 1), None)
        if record is None:
            world.result.stopped |= {(stage, p) for p in range(world.scenario.partitions) if p % shards == place[1]}
            raise CheckpointError(f"{one} of {topic} is gone, and {stage} cannot be computed again without it")
        if not items or items[-1][0] != one.request:
            items.append((one.request, []))
        sender = record.hop.stage if record.hop else ""
        if not (record.lost or model.unreadable(stage, sender, one.request, world.scenario.poison)):
            items[-1][1].append((sender, record.body))
    return [model.Item(request, tuple(sorted(parts))) for request, parts in items]
