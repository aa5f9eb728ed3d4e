"""Request-specific paths (PARD, section 5.2): da with each request going to pose OR face, foretold or not.

The estimate of the later stages takes the worst over the paths that a request may still go (`max`, as the paper does),
over those that earlier requests of its class foretell (`predicted`), or the one that it will go (`oracle`). Beside them
stands the same pipeline where all requests go both ways (`static`). The workers of the two branches are for their share
of the requests, so that all pipelines are as heavily loaded.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from math import ceil
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from agents.bench.pard.applications import application, needed_capacity, throughput
from agents.bench.pard.cases import arrivals_of, good_of, real_traces
from agents.cli.options import json_option
from agents.cli.progress import progress_bar
from agents.sim.simulation import simulate
from producers.load import schedule
from topology.routing import Graph
from topology.sizing import durations_of
from topology.spec import EmulatedSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from agents.sim.choices import Choice
    from topology.load import Pipeline
    from topology.spec import StageSpec

PAPER: Final = (0.05, 0.21, 0.10)  # how much more PARD drops than in static da, on its three traces
WAYS: Final = ("max", "predicted", "oracle")
STATIC: Final = "static"
_CHOOSER, _BRANCHES = "person", ("pose", "face")
_CLASSES = ("a", "b")


@dataclass(frozen=True, slots=True)
class Mix:
    """Who goes to pose: a share of all requests, or one share of the half in class a and the rest of the others."""

    name: str
    pose: float = 0.5  # of all requests
    told: float | None = None  # of class a; class b: the rest

    @property
    def choice(self) -> Choice:
        if self.told is None:
            return dict(zip(_BRANCHES, (self.pose, 1 - self.pose), strict=True))
        shares = (self.told, 1 - self.told)
        return {
            kind: dict(zip(_BRANCHES, order, strict=True))
            for kind, order in zip(_CLASSES, (shares, shares[::-1]), strict=True)
        }


MIXES: Final = (
    Mix("half and half"),
    Mix("4 of 5 to pose", pose=0.8),
    Mix("classes that tell 7 of 10", told=0.7),
    Mix("classes that tell 9 of 10", told=0.9),
    Mix("classes that tell all", told=1.0),
)


@dataclass(frozen=True, slots=True)
class Setting:
    """What all cells of a table have in common. `apart`: times the durations of pose, to make the branches unlike."""

    policy: str
    trace: str
    seconds: int
    seed: int
    apart: float


@cache
def da(apart: float, *, chooses: bool) -> Pipeline:
    """Give the application, with all requests going both ways or each going one."""
    base = application("da")
    stages = tuple(_stage(stage, apart, chooses=chooses) for stage in base.spec.stages)
    spec = base.spec.model_copy(update={"stages": stages})
    return replace(base, spec=spec, written=spec, graph=Graph(spec), durations=durations_of(spec, {}))


def _stage(stage: StageSpec, apart: float, *, chooses: bool) -> StageSpec:
    found = stage
    if chooses and stage.name == _CHOOSER:
        found = found.model_copy(update={"choose": "drawn:by_chance"})  # never looked up: the simulator draws
    profile = stage.emulated
    if stage.name == _BRANCHES[0] and profile is not None:
        slower = EmulatedSpec(alpha=apart * (profile.alpha or 0.0), beta=apart * (profile.beta or 0.0))
        found = found.model_copy(update={"emulated": slower})
    return found


def measure(setting: Setting, mix: Mix | None, way: str) -> tuple[float, float]:
    """Drop and invalid rate of one run; without a mix, of static da."""
    pipeline = da(setting.apart, chooses=mix is not None)
    shares = {} if mix is None else {"pose": mix.pose, "face": 1 - mix.pose}
    due, workers = _sized(pipeline, setting, shares)
    choices: dict[str, Choice] = {}
    classes: Sequence[str] = ()
    policy = setting.policy
    if mix is not None:
        choices = {_CHOOSER: mix.choice}
        policy += f"{',' if ':' in policy else ':'}paths={way}"
        if mix.told is not None:
            classes = [_CLASSES[one] for one in np.random.default_rng((setting.seed, 1)).integers(2, size=len(due))]
    result = simulate(
        pipeline,
        due,
        workers=workers,
        dispatch="shared",
        policy=policy,
        seed=setting.seed,
        choices=choices,
        classes=classes,
    )
    good = good_of(result)
    busy = sum(totals.busy for totals in result.stages.values())
    return float(1 - good.mean()), max(0.0, 1 - float(result.spent[good].sum()) / busy)


def _sized(
    pipeline: Pipeline, setting: Setting, shares: dict[str, float]
) -> tuple[NDArray[np.float64], tuple[int, ...]]:
    """Workers for each stage's share of the trace, and the trace scaled until the slowest stage is as loaded."""
    due = arrivals_of(setting.trace, setting.seed, setting.seconds, None)
    needed = max(needed_capacity(due), 1.0)
    rates = {name: rate / shares.get(name, 1.0) for name, rate in throughput(pipeline.spec, {}).items()}
    workers = tuple(ceil(needed / rate - 1e-9) for rate in rates.values())
    capacity = min(count * rate for count, rate in zip(workers, rates.values(), strict=True))
    return schedule.scaled(due, capacity / needed, np.random.default_rng(setting.seed)), workers


def compare(
    policy: str, trace: str, seconds: int, seeds: int, apart: float, done: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Mean drop and invalid rates over seeds: static, and of each mix by way."""
    settings = [Setting(policy, trace, seconds, seed, apart) for seed in range(seeds)]

    def mean(mix: Mix | None, way: str) -> dict[str, float]:
        pairs = []
        for setting in settings:
            pairs.append(measure(setting, mix, way))
            done()
        return {"drop": fmean(drop for drop, _ in pairs), "invalid": fmean(invalid for _, invalid in pairs)}

    found: dict[str, Any] = {"policy": policy, "trace": trace, "apart": apart, STATIC: mean(None, STATIC)}
    found["mixes"] = {mix.name: {way: mean(mix, way) for way in WAYS} for mix in MIXES}
    return found


@click.command()
@click.option("--policy", "policies", multiple=True, metavar="NAME", help="[default: pard and spillway]")
@click.option("--trace", "chosen", multiple=True, metavar="NAME", help="[default: tweet-like, and the real ones here]")
@click.option("--seconds", type=click.IntRange(10), default=120, show_default=True, help="Of each trace.")
@click.option("--seeds", type=click.IntRange(1), default=3, show_default=True, help="Runs whose mean is told.")
@click.option("--apart", type=float, multiple=True, help="Times the durations of pose.  [default: 1 and 2]")
@json_option
def paths(
    policies: tuple[str, ...],
    chosen: tuple[str, ...],
    seconds: int,
    seeds: int,
    apart: tuple[float, ...],
    *,
    as_json: bool,
) -> None:
    """Compare what is gained by foretelling each request's path: da with pose OR face.

    \b
    Example: spillway bench paths --trace tweet-like --policy pard --seeds 5
    """  # noqa: D301 - click's own marks
    cells = [
        (policy, trace, factor)
        for factor in apart or (1.0, 2.0)
        for trace in chosen or ("tweet-like", *real_traces())
        for policy in policies or ("pard", "spillway")
    ]
    runs = seeds * (1 + len(MIXES) * len(WAYS))
    finished = 0
    with progress_bar("simulating", runs * len(cells)) as progress:

        def done() -> None:
            nonlocal finished
            finished += 1
            progress(finished)

        found = [compare(policy, trace, seconds, seeds, factor, done) for policy, trace, factor in cells]
    if as_json:
        click.echo(json.dumps({"seconds": seconds, "seeds": seeds, "paper": PAPER, "cells": found}, indent=2))
        return
    for factor in dict.fromkeys(factor for *_, factor in cells):
        title = "pose as in da" if factor == 1 else f"pose {factor:g} times as long"
        Console(highlight=False).print(_table(title, [cell for cell in found if cell["apart"] == factor]))
    rises = ", ".join(f"{rise:g}x" for rise in PAPER)
    click.echo(f"Drop rates in %; in brackets against static da. The paper's PARD, with max: + {rises}.")


def _table(title: str, cells: list[dict[str, Any]]) -> Table:
    table = Table("trace", "policy", "requests go", STATIC, *WAYS, box=None, title=title, title_justify="left")
    for cell in cells:
        base = cell[STATIC]["drop"]
        for number, (mix, ways) in enumerate(cell["mixes"].items()):
            head = (cell["trace"], cell["policy"]) if number == 0 else ("", "")
            first = f"{100 * base:.2f}" if number == 0 else ""
            table.add_row(*head, mix, first, *(_against(ways[way]["drop"], base) for way in WAYS))
    return table


def _against(drop: float, base: float) -> str:
    rise = f" ({drop / base - 1:+.2f}x)" if base > 0 else ""
    return f"{100 * drop:.2f}{rise}"


if __name__ == "__main__":
    paths()
