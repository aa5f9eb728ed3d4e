"""The copy of a state that is made while the next batch computes (HAMS, section IV-B).

Only `update` changes a state, so while `compute` runs it stands still; the next `update` waits until `take` has
returned, and for nothing else. What lies on a device is on its way to the host then (`Staging`): the update
waits for that on the device, as it is run within `updating`; and who first reads the captured version waits for it, and
compares and copies, on its own thread. Invariants:

* A captured version is the state at the moment of `take`, whatever the model does to its tensors later.
* No change is lost. A chunk's bytes are compared with those captured last, and copied where they differ: as fast as
  copying, and exact. torch's version counters are not asked: they miss writes through `.data`, through numpy and by
  fused optimizers (`torch.optim.Adam(fused=True)` does not raise them).
* What did not change is neither copied nor hashed nor written again: versions share its block. Memory is used again;
  at most four copies of what changes exist: three places (`spillway.checkpoint.reign`) and the one being made. Off a
  device every tensor comes each time, into pinned memory for as many states as are not read yet; what differs from the
  version before is copied on from there.
* Of a keyed state only the keys named as touched are looked at, removed ones included; a change to another one is lost
  until that key is named. So a stage names every key that its model was given.

One thread takes and releases, the model's runs `updating`, another may read what is captured; then `guard` has to be a
lock, as this package knows no threads.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from spillway.checkpoint import arrays, devices
from spillway.checkpoint.blocks import Pool
from spillway.checkpoint.layout import CHUNK_BYTES, OWN_BYTES, Span, spans_of
from spillway.checkpoint.pages import named_states
from spillway.checkpoint.state import flatten
from spillway.lineage.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from spillway.checkpoint.arrays import Array
    from spillway.checkpoint.blocks import Block
    from spillway.checkpoint.devices import Device, Event
    from spillway.checkpoint.pages import Page, Pages
    from spillway.checkpoint.state import Flat
    from spillway.lineage.replication import Entry


# A state's way off its devices: what waits for what, so that a copy runs beside the next batch (HAMS, section V).
#
# model's thread    update n | mark | compute n+1 ........... | follow | update n+1
# side stream                      copies of n, behind mark ..| event
# copies' thread                   stage: starts them, and returns
# writer's thread                                             wait for the event, then read
#
# Invariants:
#
# * A copy comes behind the update whose state it is: behind the mark that `updated` has left, or, without one, behind
# everything that the device was given. It does not wait for the compute that follows.
# * The next update comes behind the copies (`updates`): on the device, where the host need not stop. Nothing else does.
# * What is staged is read behind the event alone (`Staged.wait`), on the thread that wants the bytes.
# * What lies on the host (the step count of torch's Adam) is copied when it is staged, as nobody waits for its update.
# * A buffer is used again once what was staged in it has been read or dropped: a copy into it comes behind the earlier
# one, as both are on the side stream.
#
# A model's `compute` and `update` leave their work on the stream that was current when they were called, as torch's do
# by default; one that uses streams of its own joins them before it returns. `updates` and `updated` are called on the
# model's thread, `stage` on one thread; a state stands still, as the model sees it, between `updated` and `updates`.

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
            flat = flatten(state, "the state", taking.seen)
            flats = {key: flatten(each, what, taking.seen) for key, (what, each) in keyed.items()}
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

    def hold(self, flat: Flat) -> None:
        for at, leaf in enumerate(flat.leaves):
            if id(leaf) not in self._own:
                flat.tensors[at] = flat.tensors[at].copy()

    def seen(self, leaf: Any) -> Any:
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


_SAMPLE = 4_096  # bytes that are compared before the rest: what changes, mostly changes there too


class Captured:
    """One version of a state, as it was. Whoever has it holds its memory until `release`."""

    __slots__ = ("_blocks", "_capture", "_changed", "_pages", "chunk_bytes", "entries", "own_bytes", "staged", "values")

    def __init__(self, flat: Flat, capture: Capture) -> None:
        self.entries: tuple[Entry, ...] = flat.entries
        self.values: dict[str, Any] = flat.values
        self.chunk_bytes = capture.chunk_bytes
        self.own_bytes = capture.own_bytes
        self.staged: _OnItsWay | None = None  # until its bytes were read
        self._blocks: tuple[Block, ...] = ()
        self._pages: tuple[Page, ...] = ()
        self._changed = 0
        self._capture: Capture | None = capture

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Of the tensors, in the order of their layout. The first who asks waits for what is on its way."""
        self._settle()
        return self._blocks

    @property
    def pages(self) -> tuple[Page, ...]:
        self._settle()
        return self._pages

    @property
    def changed(self) -> int:
        """Bytes that were copied for it, because they differ from the version before, likewise."""
        self._settle()
        return self._changed

    def hold(self, blocks: tuple[Block, ...], pages: tuple[Page, ...], changed: int) -> None:
        """Have its bytes; each block has been given one holder more."""
        self._blocks, self._pages, self._changed, self.staged = blocks, pages, changed, None

    def release(self) -> None:
        """Give its memory back. Raises CheckpointError the second time."""
        capture, self._capture = self._capture, None
        if capture is None:
            raise CheckpointError("a captured version was released twice")
        capture.let_go(self, self._blocks)

    def _settle(self) -> None:
        if self.staged is not None:
            if self._capture is None:
                raise CheckpointError("a captured version was read after its release")
            self._capture.settle(self)


class _OnItsWay(NamedTuple):
    """What a captured version is made of, once it is on the host."""

    staged: Staged
    touched: set[str] | None


class Capture:
    """Captures the versions of one shard's state, one after the other."""

    def __init__(
        self,
        *,
        chunk_bytes: int = CHUNK_BYTES,
        own_bytes: int = OWN_BYTES,
        pages: Pages | None = None,
        guard: AbstractContextManager[Any] | None = None,
        finder: Callable[[], Callable[[Any], Device | None] | None] = devices.finder,
    ) -> None:
        """`guard`: a lock, where several threads use it. `finder`: gives what tells the device of a tensor."""
        self.chunk_bytes = chunk_bytes
        self.own_bytes = own_bytes
        self.pool = Pool()
        self._guard: AbstractContextManager[Any] = guard if guard is not None else nullcontext()
        self._finder = finder
        self._staging = Staging()
        self._waiting: deque[Captured] = deque()  # whose bytes nobody has read yet, oldest first
        self._pages = pages
        self._entries: tuple[Entry, ...] | None = None
        self._spans: tuple[Span, ...] = ()
        self._blocks: tuple[Block, ...] = ()

    @contextmanager
    def updating(self) -> Iterator[None]:
        """Run an update within this, on the model's thread: it comes behind the copies, and the next copy behind it."""
        self._staging.updates()
        try:
            yield
        finally:
            self._staging.updated()

    def take(
        self,
        state: Mapping[Any, Any],
        keyed: Mapping[str, Mapping[Any, Any]] | None = None,
        touched: Iterable[str] | None = None,
    ) -> Captured:
        """Capture a state: its shared part, and of its keyed one the touched keys (None: all, as at first).

        Raises StateError for what cannot be kept; nothing is captured then.
        """
        if (keyed is None) != (self._pages is None):
            raise CheckpointError("a keyed state is captured with pages, a shared state without them")
        names = None if touched is None else set(touched)
        find = self._finder()
        if find is not None:
            staged = self._staging.stage(find, state, named_states(keyed or {}, names))
            if staged is not None:
                captured = Captured(staged.flat, self)
                captured.staged = _OnItsWay(staged, names)
                self._waiting.append(captured)
                return captured
        flat = flatten(state)
        with self._guard:
            self._settle_until(None)
            changed = self._pages.update(keyed, names) if self._pages is not None and keyed is not None else 0
            captured = Captured(flat, self)
            self._fill(captured, flat, changed)
        return captured

    def settle(self, captured: Captured) -> None:
        """Wait for a version's bytes, and keep what differs."""
        with self._guard:
            self._settle_until(captured)

    def let_go(self, captured: Captured, blocks: tuple[Block, ...]) -> None:
        with self._guard:
            if captured.staged is not None and self._pages is not None:
                self._settle_until(captured)  # the keys that it names are named once
                blocks = captured.blocks
            if captured.staged is not None:
                self._waiting.remove(captured)
                self._staging.done(captured.staged.staged)
            for block in blocks:
                self.pool.let_go(block)

    def _settle_until(self, captured: Captured | None) -> None:
        """Settle in their order, as each names the keys that it has touched; up to one of them, or all."""
        while self._waiting and (captured is None or captured.staged is not None):
            first = self._waiting[0]
            if first.staged is not None:
                staged, touched = first.staged
                staged.wait()
                changed = self._pages.put(staged.keyed, touched) if self._pages is not None else 0
                self._fill(first, staged.flat, changed)
                self._staging.done(staged)
            self._waiting.popleft()

    def _fill(self, captured: Captured, flat: Flat, changed: int) -> None:
        if flat.entries != self._entries:
            self._start(flat)
        view = cache(lambda tensor: arrays.flat(flat.tensors[tensor]))
        blocks = []
        for at, span in enumerate(self._spans):
            before = self._blocks[at] if self._blocks else None
            if before is None or not _is_same(span, before, view):
                blocks.append(self._copy(span, view))
                changed += span.size
            else:
                before.holders += 1
                blocks.append(before)
        self._remember(tuple(blocks))
        captured.hold(self._blocks, self._pages.now if self._pages is not None else (), changed)

    def _start(self, flat: Flat) -> None:
        self._remember(())
        self.pool.trim()
        self._staging.trim()
        self._entries = flat.entries
        self._spans = spans_of(flat.entries, self.chunk_bytes, self.own_bytes)

    def _remember(self, blocks: tuple[Block, ...]) -> None:
        for block in self._blocks:
            self.pool.let_go(block)
        for block in blocks:
            block.holders += 1
        self._blocks = blocks

    def _copy(self, span: Span, view: Callable[[int], Array]) -> Block:
        block = self.pool.take(span.size)
        if len(span.pieces) > 1:
            block.data.fill(0)  # between them, where another layout had its bytes: equal states have equal chunks
        for tensor, start, stop, at in span.pieces:
            np.copyto(block.data[at : at + stop - start], view(tensor)[start:stop])
        return block


def _is_same(span: Span, before: Block, view: Callable[[int], Array]) -> bool:
    pieces = (
        (view(tensor)[start:stop], before.data[at : at + stop - start]) for tensor, start, stop, at in span.pieces
    )
    return all(_equal(now, then) for now, then in pieces)


def _equal(one: Array, other: Array) -> bool:
    """Whether bytes are the same: a sample first, then the rest by words of eight bytes."""
    if not np.array_equal(one[:_SAMPLE], other[:_SAMPLE]):
        return False
    words = len(one) // 8 * 8
    return np.array_equal(one[words:], other[words:]) and np.array_equal(
        one[_SAMPLE:words].view(np.uint64), other[_SAMPLE:words].view(np.uint64)
    )
