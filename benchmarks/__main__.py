"""`python -m benchmarks NAME`, in a clone of the repository: the evaluations, each imported only when called."""

from __future__ import annotations

from pathlib import Path

import click

from spillway.agents.cli.main import end, run
from spillway.agents.cli.options import LazyGroup

# name -> what `python -m benchmarks --help` says of it. Each is the click command `name` in `benchmarks.<name>`, or in
# its module `command` where that is a package; an underscore stands for a hyphen.
BENCHMARKS = {
    "pard": "PARD's drop and invalid rates and its ablations, beside the paper's numbers.",
    "reference": "Our drop rates under 15 policies against those of an independent simulator.",
    "policies": "Every policy beside the clairvoyant bound.",
    "policy-cost": "What a policy costs for each request, and what its queue does.",
    "rag": "Dropping in a RAG pipeline with autoregressive stages, beside the paper.",
    "live": "Live drop rates against simulated ones, on emulated accelerators.",
    "hams": "What replicating states costs, and how soon a backup takes over, beside the paper's numbers.",
    "clipper": "Batch limits, selection and feedback, beside Clipper's figures.",
    "inferline": "Plans and sizes that follow the load against coarse-grained ones, beside InferLine's figures.",
    "plans": "By how much plans of random pipelines are dearer than the cheapest known.",
    "infaas": "Variants chosen and scaled by need and load, against static ones, beside INFaaS' figures.",
    "velox": "Users' weights learned while serving: updates, rankings, errors and regret, beside Velox's figures.",
    "parm": "Coded computation against stragglers, beside the ParM paper's numbers, in virtual time and live.",
    "state-copy": "What a version of a state costs to copy, hash, write as a delta and put together again.",
    "hop": "One hop through a stage against aiokafka, confluent-kafka, Faust and Quix Streams.",
    "overhead": "What a pipeline costs besides its models: CPU time and Kafka requests per query.",
    "gateway": "What the gateway costs over `Client`, and whether it holds under kills and hostile requests.",
    "start": "How soon a broker and a pipeline are ready, and what their processes weigh.",
    "simulate": "Stage visits per second in the simulator.",
}


_FOLDERS = {name: f"{name}.command" for name in BENCHMARKS if Path(__file__).with_name(name).is_dir()}


@click.group(cls=LazyGroup, package="benchmarks", texts=BENCHMARKS, modules=_FOLDERS)
def benchmarks() -> None:
    """Measure Spillway: its papers' evaluations, and what it costs beside other ways of doing the same.

    \b
    Example:
      python -m benchmarks pard --quick
    """  # noqa: D301 - click's own marks


if __name__ == "__main__":
    end(run(None, benchmarks, "python -m benchmarks"))
