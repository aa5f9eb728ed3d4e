"""SP, stock prediction: ticks of a share -> three forecasters, each with a memory of its own -> one forecast.

- an LSTM with a hidden state per share, trained on other shares;
- AR, an autoregression of ORDER lags that learns from every tick, by recursive least squares with forgetting;
- KNN, which keeps the last KEPT windows of the share and looks for those that are like today's.

The prices are made: returns with a cycle of the share's own, momentum and noise. All say the next return, in per mille.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.hams.pipelines.weights import Recurrent, Weights, fit, streams
from spillway.agents.models.per_key import PerKey

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spillway.agents.models.torch_streams import Streams

ORDER, KEPT, NEIGHBOURS = 6, 64, 5
FORGETTING = 0.99
WIDTH = 32
Batch = Sequence[dict[str, Any]]
State = Mapping[str, Any]


def returns(ticks: int, seed: int) -> NDArray[np.float32]:
    """A share's returns in per mille, tick by tick."""
    rng = np.random.default_rng(seed)
    period, phase = rng.uniform(8, 20), rng.uniform(0, 2 * np.pi)
    noise = rng.normal(0, 0.5, ticks)
    drift = 0.0
    out = np.empty(ticks, np.float32)
    for at in range(ticks):
        drift = 0.6 * drift + noise[at]
        out[at] = 1.5 * np.sin(2 * np.pi * at / period + phase) + drift
    return out


def forecaster() -> Recurrent:
    """Returns (n, steps, 1) -> the next one, after each."""
    return Recurrent(1, WIDTH, 1)


def ticks(batch: Batch) -> Tensor:
    return torch.tensor([[[query["change"]]] for query in batch], dtype=torch.float32)


def forecasts(said: Tensor, batch: Batch) -> list[dict[str, Any]]:
    return [{"share": query["share"], "next": row} for query, row in zip(batch, said[:, 0, 0].tolist(), strict=True)]


def blank_regression() -> dict[str, Any]:
    return {"lags": np.zeros(ORDER), "weights": np.zeros(ORDER), "spread": np.eye(ORDER) * 100.0}


def regress(state: State, query: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Learn what the lags should have said, take the tick among them, and say what comes next."""
    lags, weights, spread = state["lags"], state["weights"], state["spread"]
    gain = spread @ lags / (FORGETTING + lags @ spread @ lags)
    weights = weights + gain * (query["change"] - weights @ lags)
    spread = (spread - np.outer(gain, lags @ spread)) / FORGETTING
    lags = np.append(lags[1:], query["change"])
    answer = {"share": query["share"], "next": float(weights @ lags)}
    return answer, {"lags": lags, "weights": weights, "spread": spread}


def blank_memory() -> dict[str, Any]:
    return {"windows": np.zeros((KEPT, ORDER)), "nexts": np.zeros(KEPT), "lags": np.zeros(ORDER), "seen": 0}


def recall(state: State, query: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Keep what followed the window, and say what followed the windows that were most like the new one."""
    windows, nexts, seen = state["windows"].copy(), state["nexts"].copy(), state["seen"]
    windows[seen % KEPT], nexts[seen % KEPT] = state["lags"], query["change"]
    lags, known = np.append(state["lags"][1:], query["change"]), min(seen + 1, KEPT)
    nearest = np.argsort(((windows[:known] - lags) ** 2).sum(1), kind="stable")[:NEIGHBOURS]
    answer = {"share": query["share"], "next": float(nexts[nearest].mean())}
    return answer, {"windows": windows, "nexts": nexts, "lags": lags, "seen": seen + 1}


def lstm(*, untrained: bool = False) -> Streams:
    return streams(forecaster, "forecast", train, "share", ticks, forecasts, untrained=untrained)


def autoregression() -> PerKey:
    return PerKey(blank_regression, regress, key=lambda query: query["share"])


def neighbours() -> PerKey:
    return PerKey(blank_memory, recall, key=lambda query: query["share"])


class Combine:
    """Stateless: joins the three, by their median."""

    def predict(self, batch: Batch) -> list[dict[str, Any]]:
        names = ("lstm.next", "autoregression.next", "neighbours.next")
        return [{"next": float(np.median([query[name] for name in names]))} for query in batch]


def train() -> Weights:
    """The next return, on other shares than are asked about."""
    shares = torch.from_numpy(np.stack([returns(60, 1000 + seed) for seed in range(200)])).unsqueeze(2)
    net = forecaster()
    fit(net, lambda rows: functional.mse_loss(net(shares[rows, :-1])[0], shares[rows, 1:]), len(shares), 150)
    return {"forecast": net.state_dict()}
