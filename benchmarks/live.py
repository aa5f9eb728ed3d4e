"""Live against simulated: the same arrivals and policies on Kafka and in virtual time, with emulated accelerators.

For every application the policies run one after the other on the same arrivals. A policy agrees where its live drop
rate is within a fifth of the simulated one, or half a point; an application's order agrees where no two policies that
differ by more than that in the simulation stand the other way round live.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from benchmarks.live_cell import Cell, run_cell, sized
from benchmarks.pard.rivals import setting_of
from benchmarks.scene import kafka
from spillway.agents.cli.options import json_option
from spillway.lineage.metric_names import GATE
from spillway.producers.load import traces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

APPLICATIONS = ("lv", "tm", "ga", "da")
POLICIES = ("naive", "nexus", "clipper++", "pard", "spillway")
_FOLDER = Path(__file__).parents[1]
_RELATIVE = 0.2
_POINTS = 0.005


@click.command()
@click.option("--app", "apps", multiple=True, metavar="NAME|FILE", help="[default: lv, tm, ga, da]")
@click.option("--policy", "policies", multiple=True, metavar="NAME", help="[default: naive to spillway]")
@click.option("--trace", type=click.Path(path_type=Path), default=_FOLDER / "traces/bursty.csv", help="Repeated.")
@click.option("--rate", type=click.FloatRange(1), default=120.0, show_default=True, help="Mean queries/s.")
@click.option("--headroom", type=click.FloatRange(0.1), default=1.3, show_default=True, help="Capacity over RATE.")
@click.option("--seconds", type=click.FloatRange(5), default=120.0, show_default=True, help="Of each run.")
@click.option("--repeats", type=click.IntRange(1), default=1, show_default=True, help="Of everything, other arrivals.")
@json_option
def live(
    apps: tuple[str, ...],
    policies: tuple[str, ...],
    trace: Path,
    rate: float,
    headroom: float,
    seconds: float,
    repeats: int,
    *,
    as_json: bool,
) -> None:
    """Hold live drop rates to the simulator's, on a Kafka of its own.

    \b
    Example: python -m benchmarks live --app tm --policy naive --policy pard --seconds 30
    """  # noqa: D301 - click's own marks
    rows: list[dict[str, Any]] = []
    with kafka() as (work, settings):
        for repeat, app in itertools.product(range(repeats), apps or APPLICATIONS):
            arrivals = repeated(trace, rate, seconds, seed=repeat)
            for number, policy in enumerate(policies or POLICIES):
                name = f"live-{app_name(app)}-{repeat}-{number}"
                pipeline = sized(app_file(app), name, rate, headroom, work)
                cell = run_cell(pipeline, settings, arrivals, setting_of(policy), work / name)
                rows.append(row(app_name(app), policy, repeat, cell))
                click.echo(line(rows[-1]), err=as_json)
    click.echo(json.dumps(rows, indent=2) if as_json else "\n".join(verdicts(rows)))


def app_file(app: str) -> Path:
    """The pipeline file of an application of the paper, or of one's own."""
    return _FOLDER / f"examples/applications/{app}.yaml" if app in APPLICATIONS else Path(app)


def app_name(app: str) -> str:
    return Path(app).stem


def repeated(trace: Path, rate: float, seconds: float, seed: int) -> NDArray[np.float64]:
    """Arrivals of `trace`, over and over for `seconds`, made `rate` a second on average."""
    whole = traces.arrivals(trace, seed=seed)
    length = float(np.ceil(whole[-1]))
    scale = rate * length / len(whole)
    turns = range(int(np.ceil(seconds / length)))
    times = np.concatenate(
        [traces.arrivals(trace, seed=seed + 1000 * turn, scale=scale) + turn * length for turn in turns]
    )
    return times[times < seconds]


def row(app: str, policy: str, repeat: int, cell: Cell) -> dict[str, Any]:
    """One cell's figures; rates in percent, times in milliseconds."""
    return {
        "app": app,
        "policy": policy,
        "repeat": repeat,
        "requests": cell.live.requests,
        "live_drop": round(100 * cell.live.drop_rate, 3),
        "simulated_drop": round(100 * cell.simulated.drop_rate, 3),
        "live_invalid": round(100 * cell.live.invalid_rate, 3),
        "simulated_invalid": round(100 * cell.simulated.invalid_rate, 3),
        "hops_ms": {place: round(1000 * seconds, 2) for place, seconds in cell.hops.items()},
        "overhead_ms": round(1000 * cell.overhead, 2),
        "slip_p99_ms": round(1000 * cell.slip_p99, 2),
        "agrees": agrees(cell.live.drop_rate, cell.simulated.drop_rate),
        "emulated": True,
    }


def agrees(lived: float, simulated: float) -> bool:
    """Whether two drop rates (shares) are within a fifth of the simulated one, or half a point."""
    return abs(lived - simulated) <= max(_RELATIVE * simulated, _POINTS)


def swapped(rows: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """Pairs of policies that differ in the simulation and stand the other way round live."""
    pairs = []
    for one, two in itertools.combinations(rows, 2):
        low, high = sorted((one, two), key=lambda cell: cell["simulated_drop"])
        differ = not agrees(low["simulated_drop"] / 100, high["simulated_drop"] / 100)
        if differ and low["live_drop"] > high["live_drop"]:
            pairs.append((low["policy"], high["policy"]))
    return pairs


def line(cell: dict[str, Any]) -> str:
    return (
        f"{cell['app']:4} {cell['policy']:10} drop live {cell['live_drop']:7.3f} % simulated "
        f"{cell['simulated_drop']:7.3f} %, invalid {cell['live_invalid']:6.3f} / {cell['simulated_invalid']:6.3f} %, "
        f"hops {sum(cell['hops_ms'].values()):5.2f} ms in all (gate {cell['hops_ms'][GATE]:.2f}), "
        f"overhead {cell['overhead_ms']:.2f} ms, "
        f"slip p99 {cell['slip_p99_ms']:.1f} ms  "
        f"{'agrees' if cell['agrees'] else 'DIFFERS'} (emulated)"
    )


def verdicts(rows: Sequence[dict[str, Any]]) -> list[str]:
    said = [f"{sum(cell['agrees'] for cell in rows)} of {len(rows)} cells agree"]
    keys = sorted({(cell["app"], cell["repeat"]) for cell in rows})
    for app, repeat in keys:
        pairs = swapped([cell for cell in rows if (cell["app"], cell["repeat"]) == (app, repeat)])
        order = ", ".join(f"{one} and {two}" for one, two in pairs)
        said.append(f"{app}: " + (f"the other way round live: {order}" if pairs else "ordered as simulated"))
    return said
