"""What it costs to capture a state on a GPU, while it computes on and while it does not; imports torch.

Figures are of the wall, as the GPU's work is nobody's CPU time; the median of the repeats, as in
`benchmarks.state_copy`. "started" is what the copies' thread does before the next update may be given to the GPU;
"there" is until the bytes are in pinned memory, from the same beginning: what that update waits for; "kept" is the
comparison with the version before and the copy of what differs, on the writer's thread.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from spillway.checkpoint.capture import Capture

_TENSORS = 20
_SMALL = 0.01  # of the state
_COMPUTE = 4_096  # rows and columns of what is multiplied meanwhile
_PRODUCTS = 40


def measure(megabytes: int, repeats: int) -> dict[str, Any] | None:
    """The device, the bytes of a state of about this size, and by what was done the seconds that it took each time.

    None where there is no GPU.
    """
    if not torch.cuda.is_available():
        return None
    device = torch.device("cuda", torch.cuda.current_device())
    each = megabytes * 1_000_000 // _TENSORS // 4
    state = {f"layer{number}.weight": torch.rand(each, device=device) for number in range(_TENSORS)}
    size = sum(tensor.nbytes for tensor in state.values())
    matrix = torch.rand(_COMPUTE, _COMPUTE, device=device)
    capture, taken = Capture(), dict[str, list[float]]()

    for _ in range(repeats + 1):  # the first takes fresh memory, and is not counted
        for what, products in (("idle", 0), ("computing", _PRODUCTS)):
            for told, share in (("all", 1.0), ("1 %", _SMALL), ("none", 0.0)):
                _change(capture, state, share)
                for _ in range(products):
                    torch.mm(matrix, matrix)
                _take(capture, state, f"{told} changed, {what}", taken)
    seconds = {name: times[1:] for name, times in taken.items()}
    return {"device": torch.cuda.get_device_name(device), "bytes": size, "seconds": seconds}


def _change(capture: Capture, state: dict[str, torch.Tensor], share: float) -> None:
    left = int(share * sum(tensor.numel() for tensor in state.values()))
    with capture.updating():
        for tensor in state.values():
            if left > 0:
                tensor[:left] += 1
            left -= tensor.numel()
    torch.cuda.synchronize()


def _take(capture: Capture, state: dict[str, torch.Tensor], name: str, taken: dict[str, list[float]]) -> None:
    began = time.perf_counter()
    captured = capture.take(state)
    started = time.perf_counter()
    if captured.staged is not None:
        captured.staged.staged.wait()
    there = time.perf_counter()
    _ = captured.blocks
    kept = time.perf_counter()
    torch.cuda.synchronize()
    captured.release()
    for step, seconds in (("started", started - began), ("there", there - began), ("kept", kept - there)):
        taken.setdefault(f"{step}, {name}", []).append(seconds)
