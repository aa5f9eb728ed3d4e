"""What the gate's transactions cost: latency that it adds, the time of a commit, outcomes a second.

Three ways from the outcomes topic to a reader, interleaved and repeated: no gate at all (the reader reads the outcomes
themselves), a gate without transactions, and the gate as it is.

Run as `spillway bench gate`, or `python -m agents.bench.gate`.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from agents.bench.gate_lane import NO_GATE, Lane
from agents.broker import EmbeddedBroker
from agents.cli.options import bootstrap_option, client_config_option, json_option
from producers.connection import ClientSettings

VARIANTS = (NO_GATE, "plain", "transactional")
RATES = (100.0, 1_000.0)
_WARM_SECONDS = 1.0


@click.command()
@bootstrap_option
@client_config_option
@click.option(
    "--repeats", type=click.IntRange(1), default=7, show_default=True, help="Interleaved runs; medians count."
)
@click.option("--seconds", type=click.FloatRange(0.1), default=3.0, show_default=True, help="Of each latency run.")
@click.option("--drain", type=click.IntRange(1), default=50_000, show_default=True, help="Outcomes to drain per run.")
@json_option
def gate(
    bootstrap: str | None, client_config: Path | None, repeats: int, seconds: float, drain: int, *, as_json: bool
) -> None:
    """Measure what the gate costs, with and without its transactions.

    Uses a Kafka of its own unless --bootstrap names one.

    \b
    Example: spillway bench gate --repeats 3
    """  # noqa: D301 - click's own marks
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spillway-bench-")))
        if bootstrap is None:
            bootstrap = stack.enter_context(EmbeddedBroker(folder / "kafka")).bootstrap
        rows = measure(ClientSettings.load(bootstrap, client_config), folder, repeats, seconds, drain)
    click.echo(json.dumps(rows, indent=2) if as_json else _table(rows))


def measure(settings: ClientSettings, folder: Path, repeats: int, seconds: float, drain: int) -> list[dict[str, Any]]:
    """Run everything; one row per variant, medians over the repeats (times in milliseconds)."""
    runs: dict[str, list[dict[str, float]]] = {variant: [] for variant in VARIANTS}
    for _ in range(repeats):
        for variant in VARIANTS:
            with Lane(settings, variant, f"bench-{uuid.uuid4().hex[:8]}", folder) as lane:
                runs[variant].append(_run(lane, seconds, drain))
    return [
        {"variant": variant, **{key: statistics.median(run[key] for run in found) for key in found[0]}}
        for variant, found in runs.items()
    ]


def _run(lane: Lane, seconds: float, drain: int) -> dict[str, float]:
    found: dict[str, float] = {}
    for rate in RATES:
        with lane.gate() as writes:
            lane.latencies(rate, _WARM_SECONDS)  # it joins its group and finds its connections meanwhile
            taken = lane.latencies(rate, seconds)
        found |= {f"p50_ms_at_{rate:.0f}": _at(taken, 0.5), f"p99_ms_at_{rate:.0f}": _at(taken, 0.99)}
        found |= {f"write_p50_ms_at_{rate:.0f}": _at(writes, 0.5), f"write_p99_ms_at_{rate:.0f}": _at(writes, 0.99)}
    lane.preload(drain)
    with lane.gate():
        found["drained_per_second"] = lane.drain(drain)
    return found


def _at(seconds: list[float], share: float) -> float:
    """A quantile, in milliseconds; 0 where nothing was measured."""
    ordered = sorted(seconds)
    return ordered[int(share * (len(ordered) - 1))] * 1000 if ordered else 0.0


def _table(rows: list[dict[str, Any]]) -> str:
    lines = [f"{'':14} {'p50 / p99 ms':>18} {'p50 / p99 ms':>18} {'write p50 / p99':>18} {'drained':>10}"]
    lines.append(f"{'':14} {'at 100/s':>18} {'at 1,000/s':>18} {'ms at 1,000/s':>18} {'a second':>10}")
    for row in rows:
        pairs = [f"{row[f'{a}_ms_at_{b}']:.1f} / {row[f'{c}_ms_at_{b}']:.1f}" for a, c, b in _CELLS]
        cells = " ".join(f"{pair:>18}" for pair in pairs)
        lines.append(f"{row['variant']:14} {cells} {row['drained_per_second']:>10,.0f}")
    return "\n".join(lines)


_CELLS = (("p50", "p99", 100), ("p50", "p99", 1000), ("write_p50", "write_p99", 1000))

if __name__ == "__main__":
    gate()
