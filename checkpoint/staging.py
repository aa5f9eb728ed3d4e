"""A state's way off its devices: what waits for what, so that a copy runs beside the next batch (HAMS, section V).

    model's thread    update n | mark | compute n+1 ........... | follow | update n+1
    side stream                      copies of n, behind mark ..| event
    copies' thread                   stage: starts them, and returns
    writer's thread                                             wait for the event, then read

Invariants:

* A copy comes behind the update whose state it is: behind the mark that `updated` has left, or, without one, behind
  everything that the device was given. It does not wait for the compute that follows.
* The next update comes behind the copies (`updates`): on the device, where the host need not stop. Nothing else does.
* What is staged is read behind the event alone (`Staged.wait`), on the thread that wants the bytes.
* What lies on the host (the step count of torch's Adam) is copied when it is staged, as nobody waits for its update.
* A buffer is used again once what was staged in it has been read or dropped: a copy into it comes behind the earlier
  one, as both are on the side stream.

A model's `compute` and `update` leave their work on the stream that was current when they were called, as torch's do by
default; one that uses streams of its own joins them before it returns. `updates` and `updated` are called on the
model's thread, `stage` on one thread; a state stands still, as the model sees it, between `updated` and `updates`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from checkpoint.state import flatten

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from checkpoint.devices import Device, Event
    from checkpoint.state import Flat

_Kind = tuple[Any, ...]


class Staged:
    """States on their way to the host: their leaves, whose bytes are there once `wait` has returned."""

    __slots__ = ("_events", "buffers", "flat", "keyed")

    def __init__(
        self, flat: Flat, keyed: dict[str, Flat], buffers: list[tuple[_Kind, Any]], events: list[Event]
    ) -> None:
        self.flat = flat
        self.keyed = keyed
        self.buffers = buffers
        self._events = events

    def wait(self) -> None:
        """Stop the calling thread until all bytes are there."""
        for event in self._events:
            event.wait()


class Staging:
    """Stages the states of one shard."""

    def __init__(self) -> None:
        self._marks: dict[Device, Event] = {}  # behind the last update
        self._copies: dict[Device, Event] = {}  # that the next update has to wait for
        self._known: set[Device] = set()
        self._free: dict[_Kind, list[Any]] = {}

    def updates(self) -> None:
        copies, self._copies = self._copies, {}
        for device, event in copies.items():
            device.follow(event)

    def updated(self) -> None:
        self._marks = {device: device.now() for device in self._known}

    def stage(
        self,
        find: Callable[[Any], Device | None],
        state: Mapping[Any, Any],
        keyed: Mapping[str, tuple[str, Mapping[Any, Any]]],
    ) -> Staged | None:
        """Start to copy states off their devices; None, and nothing has happened, where all are on the host.

        `keyed`: by key, what errors call it and its state. Raises StateError for what cannot be kept.
        """
        taking = _Taking(find, self._free)
        try:
            flat = taking.take(state, "the state")
            flats = {key: taking.take(each, what) for key, (what, each) in keyed.items()}
        except BaseException:
            self._put_back(taking.buffers)
            raise
        if not taking.pairs:
            return None
        for each in (flat, *flats.values()):
            taking.hold(each)
        events = []
        for device, pairs in taking.pairs.items():
            event = self._copies[device] = device.copy(pairs, self._marks.get(device))
            events.append(event)
            self._known.add(device)
        return Staged(flat, flats, taking.buffers, events)

    def done(self, staged: Staged) -> None:
        buffers, staged.buffers = staged.buffers, []
        self._put_back(buffers)

    def trim(self) -> None:
        self._free.clear()

    def _put_back(self, buffers: list[tuple[_Kind, Any]]) -> None:
        for kind, buffer in buffers:
            self._free.setdefault(kind, []).append(buffer)


class _Taking:
    """What is found while states are looked through."""

    def __init__(self, find: Callable[[Any], Device | None], free: dict[_Kind, list[Any]]) -> None:
        self.pairs: dict[Device, list[tuple[Any, Any]]] = {}
        self.buffers: list[tuple[_Kind, Any]] = []
        self._find = find
        self._free = free
        self._own: set[int] = set()

    def take(self, state: Mapping[Any, Any], what: str) -> Flat:
        return flatten(state, what, self._seen)

    def hold(self, flat: Flat) -> None:
        for at, leaf in enumerate(flat.leaves):
            if id(leaf) not in self._own:
                flat.tensors[at] = flat.tensors[at].copy()

    def _seen(self, leaf: Any) -> Any:
        device = self._find(leaf)
        if device is None:
            return leaf
        kind = (device, tuple(leaf.shape), leaf.dtype)
        free = self._free.get(kind)
        buffer = free.pop() if free else device.buffer(leaf)
        self.buffers.append((kind, buffer))
        self._own.add(id(buffer))
        self.pairs.setdefault(device, []).append((leaf, buffer))
        return buffer
