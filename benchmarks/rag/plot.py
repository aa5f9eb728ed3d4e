"""The plot of `python -m benchmarks rag`: drops by policy beside the paper's, where they fell, and stage latencies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes


def draw(measured: dict[str, Any], path: Path) -> None:
    """Write the plot of what `benchmarks.rag.command.measure` gave to `path`; its ending says in which format."""
    figure = Figure(figsize=(13, 4), layout="constrained")
    drops, places, latencies = figure.subplots(1, 3)
    _drops(drops, measured)
    _places(places, measured)
    _latencies(latencies, measured)
    figure.suptitle(f"RAG, {measured['queries']:,} queries at {measured['rate']}/s; emulated accelerators")
    figure.savefig(path, dpi=120)


def _drops(axes: Axes, measured: dict[str, Any]) -> None:
    policies = measured["policies"]
    means = [100 * found["drop_rate"]["mean"] for found in policies.values()]
    below = [100 * (found["drop_rate"]["mean"] - found["drop_rate"]["least"]) for found in policies.values()]
    above = [100 * (found["drop_rate"]["most"] - found["drop_rate"]["mean"]) for found in policies.values()]
    axes.bar(list(policies), means, yerr=[below, above], capsize=3, color="#4a7ab5")
    paper = {name: 100 * value for name, value in measured["paper"].items()}
    axes.plot(list(paper), list(paper.values()), "D", color="#c0392b", label="the paper's")
    axes.set(title="Dropped or late", ylabel="% of queries")
    axes.tick_params(axis="x", rotation=30)
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=4)


def _places(axes: Axes, measured: dict[str, Any]) -> None:
    bottom = [0.0] * len(measured["policies"])
    for stage in measured["cells"][0]["dropped_at"]:
        shares = [
            sum(cell["dropped_at"][stage] for cell in measured["cells"] if cell["policy"] == policy)
            / (measured["seeds"] * measured["queries"])
            * 100
            for policy in measured["policies"]
        ]
        axes.bar(list(measured["policies"]), shares, bottom=bottom, label=stage)
        bottom = [under + share for under, share in zip(bottom, shares, strict=True)]
    axes.set(title="Where they were dropped", ylabel="% of queries")
    axes.tick_params(axis="x", rotation=30)
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=4)


def _latencies(axes: Axes, measured: dict[str, Any]) -> None:
    policies = list(measured["policies"])
    bottom = [0.0] * len(policies)
    for stage in measured["cells"][0]["stages"]:
        if stage == "retrieve":
            continue  # beside search, which takes longer
        means = []
        for policy in policies:
            mine = [cell["stages"][stage] for cell in measured["cells"] if cell["policy"] == policy]
            means.append(sum(cell["queued"] + cell["executed"] for cell in mine) / len(mine))
        axes.bar(policies, means, bottom=bottom, label=stage)
        bottom = [under + mean for under, mean in zip(bottom, means, strict=True)]
    axes.set(title="Latency of those served, by stage", ylabel="s (queue and execution, mean)")
    axes.tick_params(axis="x", rotation=30)
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=4)
