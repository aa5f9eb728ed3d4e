"""What a query takes by the gateway beside what it takes by `Client`, in turns on one served pipeline."""

from __future__ import annotations

import statistics
from typing import Any, Final

import click

from benchmarks.gateway.replicas import GRPC, scene
from benchmarks.gateway.sender import BY_GRPC, CLIENT, PLAIN, V2, sent
from benchmarks.output import Table, median_spread
from benchmarks.scene import apart

FIGURES: Final = {"p50": 3.0, "p99": 10.0, "cpu": 0.6}  # ms that the gateway may take over `Client`
_CPU_OF_GRPC: Final = 0.9


def measure(rate: float, seconds: float, repeats: int) -> dict[str, Any]:
    runs: dict[str, list[dict[str, float]]] = {CLIENT: [], PLAIN: [], V2: []}
    if GRPC:
        runs[BY_GRPC] = []
    else:
        click.echo("gRPC is skipped: install the extra grpc to measure it", err=True)
    with scene(1) as served:
        (replica,) = served.replicas
        for turn in range(repeats):
            for kind, found in runs.items() if turn % 2 == 0 else reversed(runs.items()):
                address = {CLIENT: str(served.settings.bootstrap), BY_GRPC: f"127.0.0.1:{replica.grpc}"}
                pid = 0 if kind == CLIENT else replica.pid
                found.append(apart(sent, kind, address.get(kind, replica.url), pid, rate, seconds, turn))
    return {"rate": rate, "seconds": seconds, "runs": runs}


def broken(_result: dict[str, Any]) -> list[str]:
    """Promise nothing: latencies are the machine's, too."""
    return []


def table(result: dict[str, Any]) -> Table:
    """Lay out the figures, and over `Client` by turns; what is out of reach has a mark."""
    rows = []
    for kind, runs in result["runs"].items():
        row = [kind]
        for figure, most in FIGURES.items():
            row.append(median_spread([run[figure] for run in runs], "{:.2f}"))
            over = [run[figure] - base[figure] for run, base in zip(runs, result["runs"][CLIENT], strict=True)]
            beyond = statistics.median(over) > (_CPU_OF_GRPC if (kind, figure) == (BY_GRPC, "cpu") else most)
            row.append("" if kind == CLIENT else median_spread(over, "{:+.2f}") + (" !" if beyond else ""))
        rows.append(row)
    columns = ("", *(name for each in ("p50, ms", "p99, ms", "CPU, ms") for name in (each, "over Client")))
    aims = ", ".join(f"{figure} +{most:g} ms" for figure, most in FIGURES.items())
    whose = "CPU a request, of the gateway or of the process that has the Client."
    note = f"{whose} In reach (else !): {aims} (gRPC {_CPU_OF_GRPC:g})."
    title = f"{result['rate']:g} queries/s for {result['seconds']:g} s, by turns: median (least to most)"
    return Table(title, columns, rows, (note,))
