"""`spillway bench`: measurements beside other ways of doing the same, each imported only when called."""

from __future__ import annotations

import click

from spillway.agents.cli.options import LazyGroup

# name -> what `spillway bench --help` says of it; each is the click command `name` in `spillway.agents.bench.<name>`
BENCHES = {
    "hop": "One hop through a stage against aiokafka, confluent-kafka, Faust and Quix Streams.",
    "gate": "What the gate's transactions cost.",
    "overhead": "What a pipeline costs besides its models: CPU time and Kafka requests per query.",
    "start": "How soon a broker and a pipeline are ready, and what their processes weigh.",
    "simulate": "Stage visits per second in the simulator.",
}
# fmt: off
MOVED = (
    "pard", "reference", "policies", "policy-cost", "rag", "live", "live-pairs", "hams", "state-copy", "standby",
    "clipper", "parm",
)
# fmt: on


class _Benches(LazyGroup):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in MOVED:
            ctx.fail(f"{args[0]} has moved: run `python -m benchmarks {args[0]}` in a clone of the repository")
        return super().resolve_command(ctx, args)


@click.group(cls=_Benches, package="spillway.agents.bench", texts=BENCHES)
def bench() -> None:
    """Run benchmarks against other systems.

    \b
    Example:
      spillway bench hop --repeats 3
    """  # noqa: D301 - click's own marks
