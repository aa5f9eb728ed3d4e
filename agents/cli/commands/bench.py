"""`spillway bench`: measurements beside other ways of doing the same, each imported only when called."""

from __future__ import annotations

import importlib

import click

from agents.cli.options import SuggestingGroup

# name -> what `spillway bench --help` says of it; each is the click command `name` in `agents.bench.<name>`
BENCHES = {
    "hop": "One hop through a stage against aiokafka, confluent-kafka, Faust and Quix Streams.",
    "gate": "What the gate's transactions cost.",
    "overhead": "What a pipeline's stages cost beside its models, at low load.",
    "start": "How soon a broker and a pipeline are ready, and what their processes weigh.",
    "simulate": "Stage visits a second in the simulator.",
}
MOVED = ("pard", "reference", "policies", "policy-cost", "rag", "live", "live-pairs", "hams", "state-copy", "standby")


class _Benches(SuggestingGroup):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in MOVED:
            ctx.fail(f"{args[0]} is `python -m benchmarks {args[0]}`, in a clone of the repository")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(BENCHES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command = getattr(importlib.import_module(f"agents.bench.{cmd_name}"), cmd_name)
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
