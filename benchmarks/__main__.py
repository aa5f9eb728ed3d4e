"""`python -m benchmarks NAME`, in a clone of the repository: the evaluations, each imported only when called."""

from __future__ import annotations

import click

from spillway.agents.cli.main import end, run
from spillway.agents.cli.options import LazyGroup

# name -> what `python -m benchmarks --help` says of it. Each is the click command `name` in the module
# `benchmarks.<name>`, with an underscore for a hyphen.
BENCHMARKS = {
    "pard": "PARD's drop and invalid rates and its ablations, beside the paper's numbers.",
    "reference": "Our drop rates under 15 policies against those of an independent simulator.",
    "policies": "Every policy beside the clairvoyant bound.",
    "policy-cost": "What a policy costs for each request, and what its queue does.",
    "rag": "Dropping in a RAG pipeline with autoregressive stages, beside the paper.",
    "live": "Live drop rates against simulated ones, on emulated accelerators.",
    "live-pairs": "Queries answered in time, pard beside naive, where hops take longer than models.",
    "hams": "What replicating states costs, and how soon a backup takes over, beside the paper's numbers.",
    "clipper": "Batch limits, workers and the prediction cache, beside Clipper's figures.",
    "inferline": "Plans and sizes that follow the load against coarse-grained ones, beside InferLine's figures.",
    "infaas": "Variants chosen and scaled by need and load, against static ones, beside INFaaS' figures.",
    "velox": "Users' weights learned while serving: updates, rankings, errors and regret, beside Velox's figures.",
    "parm": "Coded computation against stragglers, beside the ParM paper's numbers, in virtual time and live.",
    "state-copy": "What a version of a state costs to copy, hash, write as a delta and put together again.",
    "standby": "How soon a killed replica's queries are answered again, with a standby and without.",
}


@click.group(cls=LazyGroup, package="benchmarks", texts=BENCHMARKS)
def benchmarks() -> None:
    """Evaluate Spillway: its policies, its simulator and its stages with a state.

    \b
    Example:
      python -m benchmarks pard --quick
    """  # noqa: D301 - click's own marks


if __name__ == "__main__":
    end(run(None, benchmarks, "python -m benchmarks"))
