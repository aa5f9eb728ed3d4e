"""`spillway bench`: measurements beside other ways of doing the same, each imported only when called."""

from __future__ import annotations

import importlib
import importlib.util

import click

from agents.cli.suggesting import SuggestingGroup

# name -> what `spillway bench --help` says of it; each is the click command `name` in the module `agents.bench.<name>`,
# with an underscore for a hyphen
BENCHES = {
    "hop": "One hop through a stage against aiokafka, confluent-kafka, Faust and Quix Streams.",
    "gate": "What the gate's transactions cost.",
    "overhead": "What a pipeline's stages cost beside its models, at low load.",
    "start": "How soon a broker and a pipeline are ready, and what their processes weigh.",
    "live": "Live drop rates against simulated ones, on emulated accelerators.",
    "simulate": "Stage visits a second in the simulator.",
    "pard": "Every figure of PARD's evaluation, for all policies, beside the paper's numbers.",
    "reference": "Our drop rates under 15 policies against those of an independent simulator.",
    "policies": "Every policy beside the clairvoyant bound, and what is claimed of ours.",
    "policy-cost": "What a policy costs for each request, and what its queue does.",
    "rag": "Dropping in a RAG pipeline with autoregressive stages, beside the paper.",
    "plan": "The exchange of states between stages: bytes, age, silence.",
    "hams": "What replicating states costs, and how soon a backup takes over, beside the paper's numbers.",
    "state-copy": "What a version of a state costs to copy, hash, write as a delta and put together again.",
    "standby": "How soon a killed replica's queries are answered again, with a standby and without.",
    "paths": "What foretelling each request's path gains, where stages choose.",
}


def _python(name: str) -> str:
    return name.replace("-", "_")


class _Benches(SuggestingGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return [name for name in BENCHES if importlib.util.find_spec(f"agents.bench.{_python(name)}") is not None]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command = getattr(importlib.import_module(f"agents.bench.{_python(cmd_name)}"), _python(cmd_name))
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, BENCHES[name]) for name in self.list_commands(ctx)])


@click.group(cls=_Benches)
def bench() -> None:
    """Measure, side by side with other ways of doing the same.

    \b
    Example:
      spillway bench hop --repeats 3
    """  # noqa: D301 - click's own marks
