"""What is decided under noise: whether to switch to retrained features, and whether the error has risen."""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from benchmarks.output import Table, median_spread
from spillway.agents.learning.velox.learning import HELD
from spillway.agents.learning.velox.model import Features, VeloxModel
from spillway.agents.learning.velox.retraining import retrain
from spillway.agents.learning.velox.rises import BOUND, empty, merged, risen

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.agents.learning.velox.weights import Vector

KINDS: Final = ("Gaussian", "t8", "t5", "users' own sigma", "bursts")
QUIET, CALM, WINDOW = 5_000, 50_000, 200


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
        for wrong in ((0.1, 0.1), (0.08, 0.0), (0.2, 0.1)):
            rng = np.random.default_rng([users, round(100 * sum(wrong))])
            made = [_retrained(rng, wrong, users, each) for _ in range(count if wrong[0] == wrong[1] else count // 4)]
            waits = sum("not suffice" in why for taken, why, _ in made if not taken)
            gain = 100 * statistics.fmean(each for *_, each in made)
            found = [f"{100 * n / len(made):.1f}" for n in (sum(taken for taken, *_ in made), waits)]
            rows.append([f"{users} x {each}", f"{wrong[0]:g}, {wrong[1]:g}", f"{gain:.1f}", str(len(made)), *found])
    return Table(
        "Switches to retrained features, level .02",
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
    scores, series = losses / (losses + BOUND * losses[:WINDOW].mean()), empty()
    rows = np.stack([np.ones(len(losses)), scores, scores**2, losses], axis=1).reshape(-1, WINDOW, 4).sum(1)
    for number, row in enumerate(rows[1:], 2):
        series = merged({**series, "blocks": np.vstack([series["blocks"], row])}, WINDOW)
        if risen([series], WINDOW):
            return number * WINDOW - since
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
        early = sum(at is not None and at <= 0 for at in quiet)
        row = [kind, str(early), str(seeds - quiet.count(None) - early)]
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
