"""`spillway whatif`: traffic through the simulator under other policies and sizes, compared; or one run of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from spillway.agents.cli import single_run
from spillway.agents.cli.options import (
    FACTOR,
    FILE,
    choose_option,
    given,
    html_option,
    json_option,
    output_option,
    pipeline_argument,
    plan_period_option,
    positive,
    seconds,
    sizes,
    trace_duration_option,
)
from spillway.agents.cli.policies import POLICY, load_warned, require_policies
from spillway.agents.cli.summary import progress_bar
from spillway.agents.whatif import table
from spillway.agents.whatif.study import study
from spillway.agents.whatif.traffic import DIMENSIONS, Alternative, alternatives, read_traffic, resized
from spillway.lineage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spillway.agents.whatif.study import Study
    from spillway.topology.load import Pipeline

_PLOTS = (".png", ".svg", ".pdf")
_RUN = ("scale", "speed", "recording")  # what goes with --once alone
_COMPARISON = ("durations", "plot")  # what does not go with it


def _slos(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[float]:
    return [slo for value in values if (slo := positive(ctx, param, value)) is not None]


@click.command()
@pipeline_argument
@click.argument("trace")
@click.option("--once", is_flag=True, help="Run one configuration, and report on it as 'replay' does.")
@click.option("--policy", "policies", type=POLICY, multiple=True, help="Try this policy; may be repeated.")
@click.option("--workers", callback=sizes, multiple=True, metavar="STAGE=N,...", help="Try these numbers of workers.")
@click.option("--fronts", callback=sizes, multiple=True, metavar="STAGE=N,...", help="Try these numbers of fronts.")
@click.option(
    "--batch", callback=sizes, multiple=True, metavar="STAGE=N,...", help="Try these sizes of planned batches."
)
@click.option(
    "--slo",
    "slos",
    callback=_slos,
    multiple=True,
    metavar="TIME",
    help="Use this SLO instead of every recorded deadline.",
)
@click.option(
    "--dispatch",
    type=click.Choice(["worker", "shared", "partition"]),
    default="partition",
    show_default=True,
    help="worker: a queue per instance, in turn; shared: one queue per stage; partition: a queue per replica, as live "
    "and as recorded.",
)
@click.option(
    "--durations",
    type=click.Choice(["profile", "recorded"]),
    default="profile",
    show_default=True,
    help="Which durations to use if the profile and the recording both have them.",
)
@click.option(
    "--hop",
    callback=seconds,
    metavar="TIME",
    help="How long a message takes from stage to stage.  [default: as recorded, else 4 ms]",
)
@plan_period_option
@trace_duration_option
@click.option("--scale", type=FACTOR, default=1.0, show_default=True, help="With --once: multiply the requests.")
@click.option("--speed", type=FACTOR, default=1.0, show_default=True, help="With --once: multiply the trace's speed.")
@choose_option
@click.option(
    "--recording",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="DIR",
    help="With --once: take hops, choices and missing durations from it.  [default: TRACE, if that is a recording]",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of choices, and of a trace's arrivals.")
@output_option
@html_option
@click.option("--plot", type=FILE, metavar="FILE.png", help="Write the plots there: .png, .svg or .pdf.")
@json_option
def whatif(pipeline: Path, trace: str, *, once: bool, as_json: bool, **options: Any) -> None:
    """Run traffic through the simulator under other policies and sizes, and compare.

    The stages of PIPELINE decide as live ones do, in virtual time; profiles replace their models. TRACE is a directory
    that 'spillway record' made, a CSV file (second,requests or t,..., .gz too), or constant:RATE, poisson:RATE,
    gamma:RATE,CV with --duration. Of a recording it first compares what was recorded with the simulator's prediction
    for the same configuration, with a verdict that says how far to trust the rest. Live pipelines are not affected.

    Every --policy is tried with every size: each --workers (--fronts, --batch, --slo) is one alternative to the file's
    sizes, which are always tried too. To change several stages at once, name them in one option with commas. So two
    policies and two --workers make six rows. Without any option, only the file's own configuration is tried.
    Conditional edges are drawn as often as recorded, or as --choose says, which writes several successors with '+':
    '--choose ink=classify+count:.97,classify:.03'. Stages without a profile (see 'spillway plan profile') take as long
    as in the recording.

    With --once one configuration is run, and the report is that of 'replay'. Information that the trace lacks is
    assumed, and printed first. The same seed gives the same report.

    \b
    Example:
      spillway whatif pipeline.yaml monday --policy pard --policy naive --html monday.html
      spillway whatif pipeline.yaml monday --policy pard --workers detect=2 --workers detect=2,recognise=3
      spillway whatif examples/video/pipeline.yaml poisson:150 --duration 60 --policy expired --once --json
    """  # noqa: D301 - click's own marks
    for name in _COMPARISON if once else _RUN:
        if given(name):
            raise UsageError(
                f"--{name} is for " + ("a comparison: leave out --once" if once else "one run: add --once")
            )
    _check_files(options["html"], options["plot"], options["output"])
    loaded = load_warned(pipeline)
    if once:
        single_run.run(loaded, trace, _only(options), options, as_json=as_json)
        return
    wanted = _wanted(loaded, options)
    traffic = read_traffic(
        loaded, trace, seed=options["seed"], duration=options["duration"], hop=options["hop"], choices=options["choose"]
    )
    with progress_bar("simulating", len(wanted) + 1) as progress:
        found = study(
            loaded,
            traffic,
            wanted,
            dispatch=options["dispatch"],
            durations=options["durations"],
            period=options["plan_period"],
            seed=options["seed"],
            progress=progress,
        )
    _show(found, as_json=as_json)
    if (output := options["output"]) is not None:
        output.write_text(json.dumps(found.as_json(), indent=2), encoding="utf-8")
    _write(found, options["html"], options["plot"])


def _wanted(pipeline: Pipeline, options: dict[str, Any]) -> Sequence[Alternative]:
    """The alternatives, with what is wrong in them told before anything runs."""
    wanted = alternatives(options["policies"], {name: options[name] for name in DIMENSIONS}, options["slos"])
    for alternative in wanted:
        resized(pipeline, alternative.sizes)
    for policy in (None, *options["policies"]):
        require_policies(pipeline, policy)
    return wanted


def _only(options: dict[str, Any]) -> Alternative:
    """The one alternative of --once. Raises UsageError where several are given."""
    chosen = {name: options[name] for name in ("policies", *DIMENSIONS, "slos")}
    if any(len(values) > 1 for values in chosen.values()):
        raise UsageError("--once runs one configuration: give each of --policy, --workers and the like once at most")
    policy, slo = (next(iter(chosen[name]), None) for name in ("policies", "slos"))
    return Alternative(policy, {name: chosen[name][0] for name in DIMENSIONS if chosen[name]}, slo)


def _check_files(html: Path | None, plot: Path | None, output: Path | None) -> None:
    if plot is not None and plot.suffix not in _PLOTS:
        raise UsageError(f"{plot} is not a known plot format: name a file that ends in {', '.join(_PLOTS)}")
    for file in (html, plot, output):
        if file is not None and not file.absolute().parent.is_dir():
            raise UsageError(f"cannot write {file}: there is no folder {file.parent}")


def _show(found: Study, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(found.as_json(), indent=2))
        return
    console = Console(highlight=False, markup=False)  # where it is no terminal, of 80 characters
    console.print(*table.head(found), "", table.table(found, console), "", *table.foot(found), sep="\n")


def _write(found: Study, html: Path | None, plot: Path | None) -> None:
    if html is None and plot is None:
        return
    from spillway.agents.pages import comparison_page  # noqa: PLC0415 - takes a second to import

    page = comparison_page.compared(found)
    if html is not None:
        comparison_page.write(html, page)
    if plot is not None:
        comparison_page.plot(plot, page)
