"""What is done off a member's loop in a run: the model computes and changes its state, which is copied part by part."""

from __future__ import annotations

from collections import deque
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from spillway.agents.core.actions import Failed
from spillway.agents.proof.shards.replica import item_of, items_of, result_of
from spillway.agents.proof.shards.world import model
from spillway.agents.proof.shards.world.world import Made
from spillway.agents.run.shard_context import Computed, Updated
from spillway.agents.run.tally import Tally
from spillway.lineage import reasons
from spillway.lineage.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

    from spillway.agents.core.actions import Executed, Result
    from spillway.agents.core.batching import Batch
    from spillway.agents.memory.broker import Place
    from spillway.agents.metrics import StageMetrics
    from spillway.agents.proof.shards.member.host import Host
    from spillway.agents.proof.shards.world.records import Logged
    from spillway.agents.proof.shards.world.world import StateWorld
    from spillway.lineage.marks import Version
    from spillway.lineage.replication import InputRecord as Covered


@dataclass
class Box:
    """A state that changes in its place, as a model's does."""

    now: model.State


class RunMachine:
    """A model and its state."""

    def __init__(self, process: Host, state: model.State) -> None:
        self.kind = "keyed" if process.world.scenario.keys_of(process.stage) else "shared"
        self.state = Box(state)
        self.next = state  # after the update that is due


@dataclass(slots=True)
class RunComputed(Computed):
    """A batch that was computed, and the version that comes of it."""

    made: Made | None = field(default=None, kw_only=True)


class RunWork:
    """Computes and updates (`spillway.agents.run.shard_context.ShardWork`)."""

    def __init__(self, process: Host) -> None:
        self._process = process

    def compute(self, machine: RunMachine, batch: Batch, *, tried: bool = False) -> RunComputed:  # noqa: ARG002
        process, world, stage = self._process, self._process.world, self._process.stage
        process.point("compute.before")
        scenario, state = world.scenario, machine.state.now
        nonce = 0 if scenario.deterministic else world.random.getrandbits(32)
        keys = scenario.keys_of(stage)
        results: list[Result] = []
        items: list[model.Item] = []
        for request in batch.requests:
            if model.raises(stage, request.request_id, scenario.poison):
                results.append(Failed(reasons.MODEL_RAISED, "scripted"))
            elif scenario.chance and world.random.random() < scenario.chance:
                results.append(Failed(reasons.MODEL_RAISED, "by chance"))
            else:
                items.append(item_of(request))
                results.append(result_of(world, stage, model.compute(stage, state, items[-1], nonce, keys)))
        machine.next = model.update(stage, state, items, nonce, keys)
        process.point("compute.after")
        made = Made(state.digest, machine.next.digest, nonce)
        changes = any(model.changes(stage, item) for item in items)
        return RunComputed(results, world.duration(len(batch.requests)), world.now, changes, made=made)

    def update(self, machine: RunMachine, _batch: Batch) -> Updated:
        self._process.point("update.before")
        machine.state.now = machine.next
        self._process.point("update.after")
        return Updated((), self._process.world.duration(1))


class RunTally(Tally):
    """Keeps what was computed until the version is recorded."""

    def __init__(self, metrics: StageMetrics) -> None:
        super().__init__(metrics)
        self.made: Made | None = None

    def executed(self, now: float, batch: Batch, done: Executed) -> None:
        super().executed(now, batch, done)
        assert isinstance(done, RunComputed)  # a run has no other
        self.made = done.made


class RunCapture:
    """Copies a state of a run (`spillway.checkpoint.capture.Capture`)."""

    def __init__(self) -> None:
        self.first: tuple[str, ...] = ()  # what was copied before

    @staticmethod
    def updating() -> AbstractContextManager[None]:
        return nullcontext()

    def take(self, *state: Any) -> RunCopy:
        """Copy what is left of a state: of a keyed one comes first what goes with it, and then what has changed."""
        (box,) = (each for each in state if isinstance(each, Box))
        return RunCopy((*self.first, *box.now.parts[len(self.first) :]))


@dataclass(frozen=True)
class RunCopy:
    """A copy."""

    parts: tuple[str, ...]

    def release(self) -> None:
        """Nothing: it takes no memory of a device."""


class RunJobs:
    """Functions off the loop, one after the other (`spillway.agents.run.shard_context.Jobs`)."""

    def __init__(self, process: Host, seconds: Callable[[], float]) -> None:
        self._process, self._seconds = process, seconds
        self._waiting: deque[tuple[Callable[[], Any], Callable[[Any], None]]] = deque()

    @property
    def busy(self) -> bool:
        return bool(self._waiting)

    def submit(self, run: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self._waiting.append((self._prepared(run), done))
        if len(self._waiting) == 1:
            self._process.after(self._seconds(), self._next)

    def _prepared(self, run: Callable[[], Any]) -> Callable[[], Any]:
        return run

    def _next(self) -> None:
        run, done = self._waiting[0]
        result = run()
        self._waiting.popleft()
        if self._waiting:
            self._process.after(self._seconds(), self._next)
        done(result)


class RunCopies(RunJobs):
    """Copies states: some parts at once, the others at the end, as the state stands still meanwhile."""

    def _prepared(self, run: Callable[[], Any]) -> Callable[[], Any]:
        reigning = self._process.reigning
        if reigning is None:
            return run
        self._process.point("copy.before")
        return partial(self._copy, run, reigning.capture, reigning.machine.state.now.parts[:2])

    def _copy(self, run: Callable[[], Any], capture: RunCapture, first: tuple[str, ...]) -> Any:
        capture.first = first
        result = run()
        self._process.point("copy.after")
        return result


# A state of which batches are logged is computed again from them.


def replayed(world: StateWorld, place: Place, state: model.State, base: Version, entry: Logged | None) -> model.State:
    """Return the state at `base`, from the copy that its entry names; a model that draws draws anew."""
    if entry is None or entry.state_n >= base.n:
        return state
    keys = world.scenario.keys_of(place[0])
    for batch in entry.contents.batches:
        if entry.state_n < batch.n <= base.n:
            world.result.counts["replayed"] += 1
            nonce = 0 if world.scenario.deterministic else world.random.getrandbits(32)
            state = model.update(place[0], state, _items_of(world, place, batch.taken), nonce, keys)
    return state


def _items_of(world: StateWorld, place: Place, taken: Iterable[Covered]) -> list[model.Item]:
    """Return the requests of a batch as the model saw them.

    Raises CheckpointError where the input does not have them any more; the shard cannot go on then.
    """
    stage, shards, topic = place[0], world.scenario.shards_of(place[0]), world.topic(place[0])
    found = []
    for one in taken:
        record = next(world.broker.read((topic, one.partition), one.offset, one.offset + 1), None)
        if record is None:
            world.result.stopped |= {(stage, p) for p in range(world.scenario.partitions) if p % shards == place[1]}
            raise CheckpointError(f"{one} of {topic} is gone, and {stage} cannot be computed again without it")
        found.append(record)
    return items_of(stage, found, world.scenario.poison)
