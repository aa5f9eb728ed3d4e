"""The LeNet and its parity model with a service time that is emulated: a query takes `SECONDS`, computed or waited for.

Where more workers than processors compute, they wait for one another, and a worker that is stopped leaves the others
its share. With a timer a stop is all that tells one worker from another.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from examples.parm import models, networks

if TYPE_CHECKING:
    from torch import Tensor

SECONDS = 0.025  # of one query: about what the paper's ResNet-18 takes
FAST = 1.15  # how much faster a cheaper model is, as in benchmarks/parm


class _Timed:
    seconds = SECONDS
    training: bool

    def forward(self, image: Tensor) -> Tensor:
        began = time.monotonic()
        answer: Tensor = super().forward(image)  # type: ignore[misc] # the network's
        if not self.training:
            time.sleep(max(0.0, began + self.seconds - time.monotonic()))
        return answer


class LeNet(_Timed, models.LeNet):
    """The deployed model."""


class Parity(_Timed, networks.LeNet):
    """The parity model's architecture."""


class Mlp(_Timed, models.Mlp):
    """The cheaper model of `approximate`."""

    seconds = SECONDS / FAST
