"""`spillway whatif`: recorded traffic through the simulator under other policies and sizes, compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from spillway.agents.cli.options import json_option, pipeline_argument, plan_period_option, seconds, sizes
from spillway.agents.cli.policies import POLICY, load_warned
from spillway.agents.cli.summary import progress_bar, writing
from spillway.agents.whatif import table
from spillway.agents.whatif.study import study
from spillway.agents.whatif.traffic import DIMENSIONS, alternatives, read_traffic, resized
from spillway.lineage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spillway.agents.sim.plan import Dispatch
    from spillway.agents.whatif.study import Durations, Study
    from spillway.agents.whatif.traffic import Alternative
    from spillway.topology.load import Pipeline

_FILE = click.Path(path_type=Path, dir_okay=False)
_PLOTS = (".png", ".svg", ".pdf")


def _slos(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[float]:
    read = [seconds(ctx, param, value) for value in values]
    if any(value is None or not value > 0 for value in read):
        raise click.BadParameter("an SLO must be above 0")
    return [value for value in read if value is not None]


@click.command()
@pipeline_argument
@click.argument("recording")
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
    metavar="SECONDS",
    help="Use this SLO instead of every recorded deadline.",
)
@click.option(
    "--dispatch",
    type=click.Choice(["worker", "shared", "partition"]),
    default="partition",
    show_default=True,
    help="Dispatch of the alternatives, as in 'simulate'; the recorded configuration uses partition, as it ran.",
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
    metavar="SECONDS",
    help="How long a message takes from stage to stage.  [default: as recorded, else 4 ms]",
)
@plan_period_option
@click.option(
    "--duration", callback=seconds, metavar="SECONDS", help="Use only so much of the recording, from its start."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of choices, and of a trace's arrivals.")
@click.option("--html", type=_FILE, metavar="FILE", help="Write the comparison there as a page, with plots.")
@click.option("--plot", type=_FILE, metavar="FILE.png", help="Write the plots there: .png, .svg or .pdf.")
@json_option
def whatif(pipeline: Path, recording: str, *, as_json: bool, **options: Any) -> None:
    """Run recorded traffic through the simulator under other policies and sizes, and compare.

    RECORDING is a directory that 'spillway record' made, or a trace as for 'simulate'. First it compares the recording
    with the simulator's prediction for the same configuration, with a verdict that says how far to trust the rest. Live
    pipelines are not affected.

    Every --policy is tried with every size: each --workers (--fronts, --batch, --slo) is one alternative to the file's
    sizes, which are always tried too. To change several stages at once, name them in one option with commas. So two
    policies and two --workers make six rows. Without any option, only the file's own configuration is tried.
    Conditional edges are drawn as often as recorded. Stages without a profile (see 'spillway plan profile') take as
    long as in the recording.

    \b
    Example:
      spillway whatif pipeline.yaml monday --policy pard --policy naive --html monday.html
      spillway whatif pipeline.yaml monday --policy pard --workers detect=2 --workers detect=2,recognise=3
    """  # noqa: D301 - click's own marks
    loaded = load_warned(pipeline)
    wanted = _wanted(loaded, options)
    _check_files(options["html"], options["plot"])
    traffic = read_traffic(loaded, recording, seed=options["seed"], duration=options["duration"], hop=options["hop"])
    dispatch: Dispatch = options["dispatch"]
    durations: Durations = options["durations"]
    with progress_bar("simulating", len(wanted) + 1) as progress:
        found = study(
            loaded,
            traffic,
            wanted,
            dispatch=dispatch,
            durations=durations,
            period=options["plan_period"],
            seed=options["seed"],
            progress=progress,
        )
    _show(found, as_json=as_json)
    _write(found, options["html"], options["plot"])


def _wanted(pipeline: Pipeline, options: dict[str, Any]) -> Sequence[Alternative]:
    """The alternatives, with what is wrong in them told before anything runs."""
    wanted = alternatives(options["policies"], {name: options[name] for name in DIMENSIONS}, options["slos"])
    for alternative in wanted:
        resized(pipeline, alternative.sizes)
    return wanted


def _check_files(html: Path | None, plot: Path | None) -> None:
    if plot is not None and plot.suffix not in _PLOTS:
        raise UsageError(f"{plot} is not a known plot format: name a file that ends in {', '.join(_PLOTS)}")
    for file in (html, plot):
        if file is not None and not file.absolute().parent.is_dir():
            raise UsageError(f"cannot write {file}: there is no folder {file.parent}")


def _show(found: Study, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(found.as_json(), indent=2))
        return
    console = Console(highlight=False, markup=False)  # where it is no terminal, of 80 characters
    console.print(
        *table.head(found), "", table.table(found, console), "", table.EXPLAINED, *table.foot(found), sep="\n"
    )


def _write(found: Study, html: Path | None, plot: Path | None) -> None:
    if html is None and plot is None:
        return
    from spillway.agents.pages import comparison_page  # noqa: PLC0415 - takes a second to import

    page = comparison_page.compared(found)
    if html is not None:
        writing(html, lambda file: comparison_page.write(file, page))
    if plot is not None:
        writing(plot, lambda file: comparison_page.plot(file, page))
