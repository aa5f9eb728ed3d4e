"""torch's CUDA as a device that states are copied from (HAMS, section V): a side stream, pinned memory, events.

Imported only where torch has begun work on a GPU; this module imports torch. It decides nothing: what waits for what is
`spillway.checkpoint.capture`'s, which is tested on an imagined device. What runs here is tested where there is a GPU
(tests/torch/unit/test_cuda.py).

* A tensor's memory is not given to others while it is copied (`record_stream`), also where the model has let it go.
* A copy that has to bring bytes into another order first (not contiguous, conjugated) does so on the GPU: on the host
  it would be done before the bytes are there.
* Waiting on the host sleeps; torch's events spin by default.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence


class CudaEvent:
    """A place in a CUDA stream."""

    __slots__ = ("recorded",)

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self.recorded = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        self.recorded.record(stream)

    def wait(self) -> None:
        """Stop the calling thread until all before it is done; other threads of Python go on."""
        self.recorded.synchronize()


class Cuda:
    """One GPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def now(self) -> CudaEvent:
        """The place behind what the calling thread has given to its current stream."""
        return CudaEvent(torch.cuda.current_stream(self._device))

    def follow(self, event: Any) -> None:
        """Have the calling thread's current stream wait for an event, on the GPU: the CPU goes on."""
        torch.cuda.current_stream(self._device).wait_event(event.recorded)

    def buffer(self, leaf: Any) -> Any:
        return torch.empty(leaf.shape, dtype=leaf.dtype, pin_memory=True)

    def copy(self, pairs: Sequence[tuple[Any, Any]], after: Any) -> CudaEvent:
        if after is None:
            torch.cuda.synchronize(self._device)
        else:
            self._side.wait_event(after.recorded)
        with torch.cuda.stream(self._side), torch.no_grad():
            for leaf, buffer in pairs:
                source = leaf.detach()
                source.record_stream(self._side)
                buffer.copy_(source.resolve_conj().resolve_neg().contiguous(), non_blocking=True)
        return CudaEvent(self._side)


@cache
def _cuda(index: int) -> Cuda:
    return Cuda(torch.device("cuda", index))


def device_of(leaf: Any) -> Cuda | None:
    """The GPU that a leaf lies on; None for what does not, and for what no state can hold (that is refused later)."""
    if not isinstance(leaf, torch.Tensor) or not leaf.is_cuda:
        return None
    return _cuda(leaf.device.index) if leaf.layout is torch.strided and not leaf.is_quantized else None
