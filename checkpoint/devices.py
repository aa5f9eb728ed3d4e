"""What capture asks of an accelerator on which a state's tensors lie: streams of work, events in them, pinned memory.

What a stream is given is done in its order and some time later; streams know nothing of each other but for events. Each
thread has a current stream on each device, to which its work goes. torch's CUDA is one such device
(`spillway.checkpoint.cuda`); tests have an imagined one, which does everything at the worst moment that its events
allow.

torch is never imported here: where it has not been, or has begun no work on a GPU, there is no tensor on one.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Event(Protocol):
    """A place in a stream."""

    def wait(self) -> None:
        """Stop the calling thread until all before it is done."""


class Device(Protocol):
    """One accelerator, with a side stream for copies; equal only to itself."""

    def now(self) -> Event:
        """The place behind all that the calling thread has given to its current stream."""

    def follow(self, event: Event) -> None:
        """Have what the calling thread gives to its current stream from now on wait for an event of this device."""

    def buffer(self, leaf: Any) -> Any:
        """Host memory for a tensor: of its shape and dtype, and pinned, as else no copy into it runs beside work."""

    def copy(self, pairs: Sequence[tuple[Any, Any]], after: Event | None) -> Event:
        """Start to copy tensors into buffers on the side stream; the place behind the copies.

        They come after `after`; without one, after everything that the device was given by anybody until now.
        """


def finder() -> Callable[[Any], Device | None] | None:
    """What tells the device of a leaf (None: its bytes are on the host); None where nothing lies on a device."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return None
    from spillway.checkpoint.cuda import device_of  # noqa: PLC0415  it imports torch

    return device_of
