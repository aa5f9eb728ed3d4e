"""Conversations with a language model: when they come and how many tokens they read and write.

Either recorded (`t,context_tokens,generated_tokens`, as the Azure LLM inference trace has them), or drawn from the
spec beside this module: prompts and outputs by the quantiles of equally frequent classes of prompts, arrivals Poisson
at a rate that wanders (an Ornstein-Uhlenbeck process of its logarithm).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import yaml

from spillway.lineage.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

SPEC = Path(__file__).with_name("conversation.yaml")
_TICK = 1.0  # seconds between two values of the wandering rate


@dataclass(frozen=True, slots=True)
class Conversations:
    """One element each: seconds since the first (sorted), and tokens."""

    due: NDArray[np.float64]
    prompt: NDArray[np.int64]
    output: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ConversationSpec:
    """What conversations are drawn from."""

    rate: float  # a second, of the recorded ones; `draw` is given its own
    variation: float  # of the rate, as a share of it
    memory: float  # seconds
    shares: list[float]  # at which the classes give their quantiles
    classes: list[dict[str, list[int]]]  # `prompt` and `output`, each by the shares, from the least up

    def draw(self, count: int, rate: float, seed: int) -> Conversations:
        """Draw `count` of them at a mean of `rate` a second."""
        rng = np.random.default_rng(seed)
        which = rng.integers(0, len(self.classes), count)
        places = rng.random(count)
        spread = rng.random(count)
        prompt = np.ones(count, np.int64)
        output = np.ones(count, np.int64)
        for index, each in enumerate(self.classes):
            mine = which == index
            prompt[mine] = np.rint(np.interp(spread[mine], self.shares, each["prompt"]))
            output[mine] = np.rint(np.interp(places[mine], self.shares, each["output"]))
        return Conversations(self._arrivals(count, rate, rng), prompt, output)

    def _arrivals(self, count: int, rate: float, rng: np.random.Generator) -> NDArray[np.float64]:
        steps = int(2 * count / rate / _TICK) + 10
        keep = float(np.exp(-_TICK / self.memory))
        sigma = float(np.sqrt(np.log1p(self.variation**2)))
        noise = rng.normal(0.0, sigma * np.sqrt(1 - keep**2), steps)
        level = rng.normal(0.0, sigma)
        levels = np.empty(steps)
        for index, shock in enumerate(noise):
            level = levels[index] = keep * level + shock
        expected = np.concatenate([[0.0], np.cumsum(rate * np.exp(levels - sigma**2 / 2) * _TICK)])
        due = np.cumsum(rng.exponential(1.0, count))
        # Beyond the drawn rates, which is rare, the mean rate goes on.
        within = np.interp(due, expected, np.arange(steps + 1) * _TICK)
        beyond = np.maximum(0.0, due - expected[-1]) / rate
        return np.asarray(within + beyond, np.float64)


def read_spec() -> ConversationSpec:
    return ConversationSpec(**yaml.safe_load(SPEC.read_text(encoding="utf-8")))


def recorded(path: Path, count: int, rate: float, seed: int) -> Conversations:
    """Take `count` consecutive recorded ones, from a place that the seed says, their gaps scaled to a mean `rate`."""
    try:
        rows = np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: no recording of conversations: {error}") from error
    if rows.shape[1] != 3 or count > len(rows):
        raise UsageError(f"{path}: give it the columns t,context_tokens,generated_tokens and at least {count} rows")
    start = int(np.random.default_rng(seed).integers(0, len(rows) - count + 1))
    rows = rows[start : start + count]
    due = rows[:, 0] - rows[0, 0]
    whole = float(due[-1])
    scale = (count - 1) / whole / rate if whole > 0 else 1.0
    lengths = np.maximum(1, rows[:, 1:]).astype(np.int64)
    return Conversations(due * scale, lengths[:, 0], lengths[:, 1])
