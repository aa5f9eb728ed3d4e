"""The divergence experiment of HAMS (section II-C, figures 2 and 3) in miniature: checkpoint and replay, then compare.

    python -m examples.stateful.divergence [--repeats 10] [--intervals 1,5,10,25,50,100]

A network learns online. A GPU adds up a batch's gradients in whatever order its threads come; here the batch's rows are
shuffled before each training step, by a generator that no seed and no state holds: the same sum of float32 numbers, in
another order. The model dies k batches after a checkpoint and is replayed from it with the same batches in the same
order. Then both, the one from before and the one that came back, judge the same 182 pictures, as many as the paper's.

- conflicts: repeats in which at least one picture is classified otherwise (the paper's "classification errors");
- pictures: how many were, all repeats together;
- 8-bit: repeats in which the loss over all pictures differs once it is rounded to 8 significant bits;
- apart: repeats whose parameters differ at all, and the largest difference of a parameter, the median of the repeats.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from agents.models.rehearsal import copy_states
from agents.models.stateful import run
from agents.models.torch_learner import Learner
from examples.stateful.labelling import images, labels, loss, pictures

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agents.models.state import State

TESTED = 182  # pictures, as in the paper's figure 3
BATCH = 64
WARM = 30  # batches before the checkpoint
INTERVALS = (1, 5, 10, 25, 50, 100)
BITS = 8


class Network(nn.Module):
    """A small classifier of pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10),
        )  # fmt: skip

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        return self.body(seen)


class Unordered(Learner):
    """A learner whose sums of gradients are taken in an order of chance, unless it is `ordered`."""

    def __init__(self, *, ordered: bool = False, rate: float = 0.1) -> None:
        super().__init__(
            Network,
            lambda parameters: torch.optim.SGD(parameters, lr=rate, momentum=0.9),
            inputs=images,
            loss=loss,
            answers=labels,
            reads=lambda query: "label" not in query,
        )
        self._order = None if ordered else random.SystemRandom()

    def compute(self, state: State, batch: Sequence[Any]) -> list[Mapping[str, Any]]:
        places = list(range(len(batch)))
        if self._order is not None:
            self._order.shuffle(places)
        shuffled = super().compute(state, [batch[place] for place in places])
        answers: list[Mapping[str, Any]] = [{}] * len(batch)
        for place, answer in zip(places, shuffled, strict=True):
            answers[place] = answer
        return answers


@dataclass(frozen=True, slots=True)
class Row:
    """What came of all repeats at one checkpoint interval."""

    interval: int  # batches
    repeats: int
    conflicts: int
    pictures: int
    eight_bit: int
    apart: int
    distance: float
    example: str = ""
    """One picture that was classified otherwise, as in figure 2."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a model says of the tested pictures."""

    labels: tuple[int, ...]
    confidences: tuple[float, ...]
    loss: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """A state and its replay."""

    conflicts: list[str]  # of each picture that was classified otherwise, what it was and what it became
    eight_bit: bool
    distance: float


def judge(state: State, tested: Sequence[Mapping[str, Any]]) -> Judgement:
    """All tested pictures, asked in one batch in their order: only the state can make a difference."""
    network = Network()
    network.load_state_dict({name.removeprefix("module."): state[name] for name in state if name.startswith("module.")})
    with torch.no_grad():
        logits = network(images(tested))
    told = labels(logits, tested)
    wanted = torch.tensor([query["truth"] for query in tested])
    return Judgement(
        tuple(each["label"] for each in told),
        tuple(each["confidence"] for each in told),
        float(functional.cross_entropy(logits, wanted)),
    )


def compare(original: State, replayed: State, tested: Sequence[Mapping[str, Any]]) -> Comparison:
    """What of the judgement is another after the replay."""
    before, after = judge(original, tested), judge(replayed, tested)
    told = [zip(each.labels, each.confidences, strict=True) for each in (before, after)]
    conflicts = [
        f"picture {number} was a {old} (confidence {sure:.4f}) and became a {new} ({surer:.4f})"
        for number, ((old, sure), (new, surer)) in enumerate(zip(*told, strict=True))
        if old != new
    ]
    return Comparison(conflicts, rounded(before.loss) != rounded(after.loss), distance(original, replayed))


def rounded(value: float, bits: int = BITS) -> float:
    """A number with as many significant bits."""
    fraction, exponent = math.frexp(value)
    return math.ldexp(round(fraction * (1 << bits)), exponent - bits)


def distance(one: State, other: State) -> float:
    """The largest difference of a parameter."""
    return max(float((one[name] - other[name]).abs().max()) for name in one if name.startswith("module."))


def experiment(
    intervals: Sequence[int] = INTERVALS, repeats: int = 10, *, ordered: bool = False, warm: int = WARM, seed: int = 1
) -> list[Row]:
    """Per repeat one run from a checkpoint on, and its replay; each interval is a death that many batches on."""
    batches = [pictures(BATCH, seed + number) for number in range(warm + max(intervals))]
    tested = pictures(TESTED, seed + 10_000, taught=False)
    found: dict[int, list[Comparison]] = {interval: [] for interval in intervals}
    for _ in range(repeats):
        checkpoint = copy_states("shared", run(Unordered(ordered=ordered), batches[:warm]).state)
        originals = _along(checkpoint, batches[warm:], intervals, ordered=ordered)
        replayed = _along(checkpoint, batches[warm:], intervals, ordered=ordered)
        for interval in intervals:
            found[interval].append(compare(originals[interval], replayed[interval], tested))
    return [_row(interval, found[interval]) for interval in intervals]


def _along(
    checkpoint: State, batches: Sequence[Sequence[Any]], intervals: Sequence[int], *, ordered: bool
) -> dict[int, State]:
    """The states after each of the intervals, on one run from the checkpoint."""
    model, state, states, done = Unordered(ordered=ordered), copy_states("shared", checkpoint), {}, 0
    for interval in sorted(intervals):
        state = run(model, batches[done:interval], state=state).state
        states[interval], done = copy_states("shared", state), interval
    return states


def _row(interval: int, found: Sequence[Comparison]) -> Row:
    return Row(
        interval,
        len(found),
        sum(bool(each.conflicts) for each in found),
        sum(len(each.conflicts) for each in found),
        sum(each.eight_bit for each in found),
        sum(each.distance > 0 for each in found),
        statistics.median(each.distance for each in found),
        next((each.conflicts[0] for each in found if each.conflicts), ""),
    )


def table(rows: Sequence[Row]) -> str:
    """The rows as text."""
    lines = ["batches since  repeats  conflicts  pictures of all  8-bit losses  apart  largest difference"]
    lines += [
        f"{row.interval:13}  {row.repeats:7}  {row.conflicts:9}  {row.pictures:8} of {row.repeats * TESTED:4}"
        f"  {row.eight_bit:12}  {row.apart:5}  {row.distance:18.2e}"
        for row in rows
    ]
    examples = [f"after {row.interval} batches, {row.example}" for row in rows if row.example]
    return "\n".join([*lines, *examples[:1]])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--intervals", default=",".join(map(str, INTERVALS)), help="batches, with commas")
    given = parser.parse_args()
    intervals = [int(each) for each in given.intervals.split(",")]
    torch.set_num_threads(1)
    print("summed in an order of chance, as a GPU does:")
    print(table(experiment(intervals, given.repeats)))
    print("\nsummed in the batch's order:")
    print(table(experiment(intervals[-1:], 2, ordered=True)))


if __name__ == "__main__":
    np.seterr(all="raise")
    main()
