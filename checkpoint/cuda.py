"""The copy of a state off a GPU (HAMS, section V): a side stream, pinned memory, an event that `update` waits for.

Imported only where a state has tensors on a GPU; this module imports torch. Not run in CI, which has no GPU: what is
tested there is that it is not needed.

`start` returns at once: the copies run on a stream of their own, behind what the model's stream has done so far, while
the model computes on. Invariants:

* The model's next `update` must come after the copies: `hold_back` makes the model's stream wait for them, on the GPU,
  without stopping the CPU.
* The pinned memory may be read once `wait` has returned. There are two sets of it, used in turn: a set is written again
  only two states later, so the one before may still be captured from.
* A tensor's memory is not given to others while it is copied (`record_stream`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from checkpoint.names import nested
from checkpoint.state import leaves

if TYPE_CHECKING:
    from collections.abc import Mapping


class Transfer:
    """One state on its way to the host."""

    __slots__ = ("_event", "_stream", "state")

    def __init__(self, state: dict[Any, Any], stream: torch.cuda.Stream, event: torch.cuda.Event) -> None:
        self.state = state  # the same on the host, for `Capture.take`; to be read after `wait`
        self._stream = stream
        self._event = event

    def hold_back(self) -> None:
        """Make what the model's stream is given from now on wait for the copies; call it before `update`."""
        torch.cuda.current_stream(self._stream.device).wait_event(self._event)

    def ready(self) -> bool:
        """Whether the copies are there."""
        return bool(self._event.query())  # type: ignore[no-untyped-call]

    def wait(self) -> None:
        """Stop the calling thread until they are."""
        self._event.synchronize()


class Transfers:
    """Copies a state's tensors from one GPU into pinned memory, again and again."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._device = device
        self._sets: list[dict[str, torch.Tensor]] = [{}, {}]
        self._turn = 0

    def start(self, state: Mapping[Any, Any]) -> Transfer:
        """Start to copy a state; what does not lie on this GPU is in the copy as it is, and must stand still."""
        self._turn ^= 1
        pinned = self._sets[self._turn]
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        copies: list[tuple[str, Any]] = []
        with torch.cuda.stream(self._stream):
            for name, leaf in leaves(state):
                if not isinstance(leaf, torch.Tensor) or leaf.device != self._device:
                    copies.append((name, leaf))
                    continue
                copy = pinned.get(name)
                if copy is None or copy.shape != leaf.shape or copy.dtype != leaf.dtype:
                    copy = pinned[name] = torch.empty(leaf.shape, dtype=leaf.dtype, pin_memory=True)
                source = leaf.detach()
                copy.copy_(source, non_blocking=True)
                source.record_stream(self._stream)
                copies.append((name, copy))
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(self._stream)
        return Transfer(nested(copies), self._stream, event)


def device_of(state: Mapping[Any, Any]) -> torch.device | None:
    """The GPU that a state's first tensor on one lies on; None where all are on the host."""
    on_gpu = (leaf.device for _, leaf in leaves(state) if isinstance(leaf, torch.Tensor) and leaf.is_cuda)
    return next(on_gpu, None)
