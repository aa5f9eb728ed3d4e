"""What is estimated and decided under noise: the users' prior, switches to retrained features, and rises of the error."""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from benchmarks.output import Table, median_spread
from examples.velox.ratings import World
from spillway.agents.learning.velox.als import als
from spillway.agents.learning.velox.learning import HELD
from spillway.agents.learning.velox.model import Features, VeloxModel
from spillway.agents.learning.velox.prior import estimated
from spillway.agents.learning.velox.retraining import retrain
from spillway.agents.learning.velox.rises import added, empty, risen
from spillway.agents.learning.velox.weights import fitted

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.agents.learning.velox.weights import Vector

WORLDS: Final = ((3000, 80), (2000, 100), (2000, 120), (1500, 150), (1000, 200))  # users and items
BEFORE, MORE, OUT, RANK, REGULARIZATION = 20, 14, 20, 9, 3.0
KINDS: Final = ("Gaussian", "t8", "t5", "users' own sigma", "bursts")
QUIET, CALM, WINDOW = 5_000, 50_000, 200


def _shares(size: tuple[int, int], seed: int) -> tuple[float, ...]:
    """RMSE before, online with lambda I and with the prior, and retrained; all but the third by eq. 2.2 as printed."""
    each = BEFORE + MORE + OUT
    users, items, ratings = World.made(*size, seed=seed).ratings(each, seed)
    rows, values = items.reshape(-1, each), ratings.reshape(-1, each)

    def trained(count: int) -> Any:
        first = (np.arange(len(users)) % each) < count
        return als(users[first], items[first], ratings[first], size, rank=RANK, regularization=REGULARIZATION)[1]

    def error(features: Any, count: int, precision: Any, mean: Vector) -> float:
        off = [
            features[own[-OUT:]] @ fitted(features[own[:count]], told[:count], precision, mean)[0] - told[-OUT:]
            for own, told in zip(rows, values, strict=True)
        ]
        return float(np.sqrt(np.mean(np.square(off))))

    old, new, flat = trained(BEFORE), trained(BEFORE + MORE), (REGULARIZATION, np.zeros(RANK))
    prior = estimated(list(old[rows[:, :BEFORE]]), list(values[:, :BEFORE]), REGULARIZATION)
    online = error(old, BEFORE + MORE, *flat), error(old, BEFORE + MORE, prior.precision, prior.mean)
    return error(old, BEFORE, *flat), *online, error(new, BEFORE + MORE, *flat)


def priors(seeds: int) -> Table:
    rows, ratios = [], []
    for size in WORLDS:
        runs = [_shares(size, seed) for seed in range(max(2, seeds // 4))]
        shares = [[(run[0] - run[which]) / (run[0] - run[3]) for run in runs] for which in (1, 2)]
        ratios.append([after / before for before, after in zip(*shares, strict=True)])
        means = [f"{statistics.fmean(run[which] for run in runs):.3f}" for which in range(4)]
        told = [median_spread(each, "{:.2f}") for each in (*shares, ratios[-1])]
        rows.append([f"{size[0]} x {size[1]}", *means, *told])
    without = [statistics.fmean(sum(ratios[:at] + ratios[at + 1 :], [])) for at in range(len(ratios))]
    return Table(
        f"The prior: share of retraining's gain that updates recover, {BEFORE} + {MORE} ratings a user",
        ("users x items", "before", "online, lambda I", "prior", "retrained", "share, lambda I", "prior", "times"),
        rows,
        (f"Mean of the last column without one world: {min(without):.2f} to {max(without):.2f}. Lambda 3, rank 9.",),
    )


class _Two(VeloxModel):
    """A table that is wrong by so much, which retraining replaces by another."""

    dimension, items = 8, range(200)

    def __init__(self, rng: np.random.Generator, wrong: tuple[float, float]) -> None:
        self.truth = rng.normal(size=(200, 8)) / 8**0.5
        self.table, self.other = (
            self.truth + rng.normal(size=(200, 8)) * (each * 0.36 / 4.64) ** 0.5 for each in wrong
        )

    def retrain(self, _seen: Any) -> dict[str, Any]:
        return {"table": self.other}


def _retrained(rng: np.random.Generator, wrong: tuple[float, float], users: int, each: int) -> tuple[bool, str, float]:
    model, states = _Two(rng, wrong), {}
    for user in range(users):
        items, taste = rng.choice(200, each, replace=False).tolist(), 0.3 + 0.7 * rng.normal(size=8)
        values = model.truth[items] @ taste + 0.6 * np.exp(0.3 * rng.normal()) * rng.normal(size=each)
        lines = "".join(f"{json.dumps(item)}\n" for item in items).encode()
        states[str(user)] = {"items": np.frombuffer(lines, np.uint8), "values": values, "n": each, HELD: {}}
    made = retrain(Features(model), "0", states)
    return made.better(0.01), made.why(0.01), 1 - made.new / made.old


def switches(count: int) -> Table:
    rows = []
    for users, each in ((100, 40), (12, 40)):
        for wrong in ((0.1, 0.1), (0.3, 0.3), (0.08, 0.0), (0.2, 0.1), (0.2, 0.05)):
            rng = np.random.default_rng([users, round(100 * sum(wrong))])
            made = [_retrained(rng, wrong, users, each) for _ in range(count if wrong[0] == wrong[1] else count // 4)]
            waits = sum("not suffice" in why for taken, why, _ in made if not taken)
            gain = 100 * statistics.fmean(each for *_, each in made)
            found = [f"{100 * n / len(made):.1f}" for n in (sum(taken for taken, *_ in made), waits)]
            rows.append([f"{users} x {each}", f"{wrong[0]:g}, {wrong[1]:g}", f"{gain:.1f}", str(len(made)), *found])
    return Table(
        "Switches to retrained features, level .01",
        ("users x ratings", "variance of errors, old and new", "less loss, %", "retrainings", "switch, %", "wait, %"),
        rows,
        ("Both tables are the true features with errors of their own; the variance is that of scores, in noise's.",),
    )


def _losses(kind: str, count: int, rng: np.random.Generator) -> Vector:
    noise = rng.standard_t(int(kind[1]), count) if kind[0] == "t" else rng.normal(size=count)
    level = np.zeros(count)
    if kind == KINDS[3]:
        level = 0.7 * rng.normal(size=1000)[rng.integers(1000, size=count)]
    elif kind == KINDS[4]:
        steps = rng.normal(size=count) * 0.06
        level[0] = 10 * steps[0]
        for at in range(1, count):
            level[at] = 0.995 * level[at - 1] + steps[at]
    return np.square(np.exp(level) * noise)


def _found(losses: Vector, since: int) -> int | None:
    """After how many observations `since` a rise is found; below 0 where it is found before."""
    first, series = float(losses[:WINDOW].mean()), empty()
    for number, loss in enumerate(losses.tolist()[WINDOW:], WINDOW + 1):
        series = added(series, loss, first, WINDOW)
        if number % WINDOW == 0 and risen([series], WINDOW):
            return number - since
    return None


def rises(seeds: int) -> Table:
    changes: dict[str, tuple[int, Callable[[Any], Any]]] = {
        "x 1.5": (1_000, lambda _after: 1.5),
        "x 1.3": (5_000, lambda _after: 1.3),
        "to x 3": (10_000, lambda after: 1 + after / 10_000),
        "x 2": (20_000, lambda _after: 2.0),
    }
    rows = []
    for kind in KINDS:
        rng = np.random.default_rng(KINDS.index(kind))
        quiet = [_found(_losses(kind, QUIET + CALM, rng), QUIET) for _ in range(seeds)]
        row = [
            kind,
            *(f"{sum(bool(at and which(at)) for at in quiet)}" for which in (lambda at: at <= 0, lambda at: at > 0)),
        ]
        for most, change in changes.values():
            after = np.maximum(np.arange(QUIET + most) - QUIET, 0)
            factor = np.where(np.arange(QUIET + most) >= QUIET, change(after), 1.0)
            found = [_found(_losses(kind, QUIET + most, rng) * factor, QUIET) for _ in range(seeds)]
            times = [at for at in found if at and at > 0]
            row.append(f"{len(times)}: {median_spread(times, '{:.0f}')}" if times else "0")
        rows.append(row)
    return Table(
        f"Rises of squared losses found, of {seeds} series each, and after how many observations",
        (
            "losses",
            "alarms in 5,000 quiet",
            "in 50,000 more",
            *(f"{name}, of {most:,}" for name, (most, _) in changes.items()),
        ),
        rows,
        ("A look every 200 observations; a change after 5,000. To x 3: within 20,000, half of which are shown.",),
    )
