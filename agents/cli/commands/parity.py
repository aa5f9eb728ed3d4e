"""`spillway train parity` and `evaluate`: the parity models of a stage, and how accurate reconstructions are."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console
from rich.table import Table

from spillway.agents.cli.options import FOLDER, json_option, pipeline_argument
from spillway.agents.cli.summary import progress_bar
from spillway.agents.coding.card import check_card, outdated, read_card
from spillway.agents.coding.codes import CODES, MOST, code_of
from spillway.agents.coding.data import read_data, recorded_data
from spillway.agents.coding.evaluation import METRICS, check_metric
from spillway.agents.coding.evaluation import evaluate as grade
from spillway.agents.coding.making import Maker, deployed_answers
from spillway.agents.coding.parity import Parity
from spillway.lineage.errors import ModelError, UsageError
from spillway.topology.load import load

if TYPE_CHECKING:
    from spillway.agents.coding.card import Card
    from spillway.agents.coding.data import Data
    from spillway.agents.coding.evaluation import Grades
    from spillway.agents.coding.making import Made
    from spillway.topology.load import Pipeline
    from spillway.topology.spec import StageSpec

_HELD: Final = 0.2  # of the queries, for the grades
_DEFAULTS: Final = {"k": 2, "rows": 1, "encoder": "sum"}
_POOR: Final = 0.1  # by which made answers' grade may be lower before it is told of
_UNAVAILABLE: Final = (0.01, 0.05, 0.1)  # expected levels (section 4.2: at most a tenth)

_stage = click.argument("stage")
_data = click.option(
    "--data", metavar="WHAT", help="Queries: an .npz of arrays, or a module:function that returns them."
)
_recording = click.option(
    "--recording",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Instead: a recording of 'spillway record', for a stage that comes first.",
)
_metric = click.option(
    "--metric",
    metavar="NAME",
    help=f"How answers are graded: {', '.join(METRICS)} or module:function.  [default: accuracy]",
)
_seed = click.option("--seed", type=int, default=0, show_default=True, help="Seed of weights and groups.")
_folder = click.option(
    "--folder",
    type=FOLDER,
    metavar="DIR",
    help="Folder of cards and weights.  [default: as the stage says, else parity/STAGE beside the pipeline]",
)


@click.command()
@pipeline_argument
@_stage
@_data
@_recording
@click.option("--test", metavar="WHAT", help="Queries to grade on.  [default: a fifth of the data, held out]")
@click.option("--k", type=click.IntRange(2, MOST), help="Queries per group.  [default: as the stage says, else 2]")
@click.option("--rows", type=click.IntRange(1), help="Number of parity models.  [default: as the stage says, else 1]")
@click.option(
    "--encoder", metavar="NAME", help=f"{', '.join(CODES)} or module:Class.  [default: as the stage says, else sum]"
)
@click.option("--epochs", type=click.IntRange(1), default=200, show_default=True, help="Passes over the queries.")
@click.option(
    "--architecture", metavar="MODULE:CLASS", help="Architecture of the parity model.  [default: the stage's model]"
)
@_folder
@_metric
@_seed
@json_option
def parity(
    pipeline: Path,
    stage: str,
    *,
    data: str | None,
    recording: Path | None,
    test: str | None,
    epochs: int,
    architecture: str | None,
    folder: Path | None,
    metric: str | None,
    seed: int,
    as_json: bool,
    **coding: Any,
) -> None:
    """Train a stage's parity models, and write weights and cards to its parity folder.

    Each array of the data has the name of an input of the stage, and the queries as its first axis. `label` has the
    true answers: classes, or boxes x0, y0, x1, y1. Without it, as in a recording, answers are graded against the
    deployed model's own.

    \b
    Example:
      spillway train parity pipeline.yaml detect --data queries.npz --k 3 --rows 2
      spillway train parity pipeline.yaml detect --recording recordings/monday
    """  # noqa: D301
    loaded = load(pipeline, profiled=False)
    spec = loaded.written.stage(stage)
    chosen = {name: _chosen(spec, name, coding[name]) for name in _DEFAULTS}
    if chosen["encoder"] == "concatenation" and chosen["rows"] > 1:
        raise UsageError("encoder 'concatenation' has one row; use --rows 1, or --encoder sum")
    graded_by = check_metric(metric or METRICS[0])
    given = _given(loaded, spec, data, recording)
    train_on, grade_on = given.split(_HELD, seed) if test is None else (given, read_data(test, spec))
    place = folder or _place(loaded.path, spec)
    maker = Maker(spec, place, train_on, grade_on, k=chosen["k"], encoder=chosen["encoder"])
    from spillway.agents.coding.training import Effort  # noqa: PLC0415 - torch, and only after what can be refused without it

    done: list[Made] = []
    effort = Effort(epochs=epochs, seed=seed)
    with progress_bar("training", epochs * chosen["rows"]) as progress:
        for row in range(chosen["rows"]):
            after = partial(lambda before, epoch: progress(before + epoch), row * epochs)
            done.append(maker.make(row, effort, architecture=architecture, metric=graded_by, progress=after))
    _tell_made(place, done, as_json=as_json)


@click.command()
@pipeline_argument
@_stage
@_data
@_recording
@click.option("--rows", type=click.IntRange(1), help="Parity models to use.  [default: as the stage says, else 1]")
@click.option(
    "--unavailable",
    type=click.FloatRange(0, 1),
    multiple=True,
    metavar="SHARE",
    help="Share of unavailable answers (f_u); can be repeated.",
)
@_folder
@_metric
@_seed
@json_option
def evaluate(
    pipeline: Path,
    stage: str,
    *,
    data: str | None,
    recording: Path | None,
    rows: int | None,
    unavailable: tuple[float, ...],
    folder: Path | None,
    metric: str | None,
    seed: int,
    as_json: bool,
) -> None:
    """Grade a stage's reconstructions: A_a, A_d and A_o of the ParM paper, section 4.1.

    A_a is the accuracy of the deployed model, A_d of reconstructions, A_o of both if a share f_u of answers is
    unavailable. Each answer of a group is left out in turn, and with two rows each pair.

    \b
    Example:
      spillway train evaluate pipeline.yaml detect --data test.npz --unavailable .1
    """  # noqa: D301
    loaded = load(pipeline, profiled=False)
    spec = loaded.written.stage(stage)
    place = folder or _place(loaded.path, spec)
    cards = [read_card(place, row) for row in range(_chosen(spec, "rows", rows))]
    card = cards[0]
    for each in cards:
        check_card(each, place, str(spec.model), card.k, card.encoder)
        if why := outdated(each, place, spec.arguments):
            raise ModelError(why)
    given = _given(loaded, spec, data, recording)
    if len(given) < card.k:
        raise UsageError(f"{data or recording} has {len(given)} queries, too few for a group of {card.k}")
    parities = {each.row: Parity(str(place), each.row) for each in cards}
    outputs = deployed_answers(spec, given)
    code = code_of(card.encoder, card.k)
    grades = grade(parities, code, card.k, given, outputs, metric=check_metric(metric or card.metric), seed=seed)
    _tell_grades(card, grades, unavailable or _UNAVAILABLE, as_json=as_json)


def _given(pipeline: Pipeline, stage: StageSpec, data: str | None, recording: Path | None) -> Data:
    if data is not None and recording is None:
        return read_data(data, stage)
    if recording is None or data is not None:
        raise UsageError("queries come from either --data or --recording: give one of them")
    found = recorded_data(recording, pipeline.written, stage)
    if found.left_out:
        click.echo(
            f"{found.left_out} recorded queries are left out: they are not finite, or differ in shape from most",
            err=True,
        )
    return found


def _chosen(stage: StageSpec, name: str, given: Any) -> Any:
    """A setting: the option's, else the stage's section's, else the default."""
    if given is not None:
        return given
    return _DEFAULTS[name] if stage.coding is None else getattr(stage.coding, name)


def _place(pipeline: Path, stage: StageSpec) -> Path:
    return pipeline.parent / (f"parity/{stage.name}" if stage.coding is None else stage.coding.parity)


def _tell_made(place: Path, done: list[Made], *, as_json: bool) -> None:
    if as_json:
        rows = [{**each.card.model_dump(mode="json"), "seconds": each.seconds, "epoch": each.epoch} for each in done]
        click.echo(json.dumps({"folder": str(place), "rows": rows}))
        return
    metric = done[0].card.metric
    table = Table("row", "k", "encoder", f"A_a, {metric}", f"A_d, {metric}", "mean answer", "trained", box=None)
    for each in done:
        card, grades = each.card, each.grades
        figures = (_percent(grades.deployed), _percent(card.degraded), _percent(grades.default))
        table.add_row(str(card.row), str(card.k), card.encoder, *figures, f"{each.epoch} epochs, {each.seconds:.1f} s")
    Console(highlight=False).print(table)
    _tell_truth(done[0].grades)
    for each in done:
        if each.card.degraded is None or each.card.degraded >= each.grades.deployed - _POOR:
            continue
        click.echo(
            f"warning: row {each.card.row}: A_d, of reconstructed answers, is {_percent(each.card.degraded)}, and A_a, "
            f"of the model's own, {_percent(each.grades.deployed)}: give more queries or --epochs, another "
            "--architecture, or a smaller --k; or set coding.floor",
            err=True,
        )
    click.echo(f"written to {place}")


def _tell_grades(card: Card, grades: Grades, unavailable: tuple[float, ...], *, as_json: bool) -> None:
    overall = {share: {n: grades.overall(share, n) for n in grades.degraded} for share in unavailable}
    if as_json:
        told = {"metric": grades.metric, "k": card.k, "encoder": card.encoder, "deployed": grades.deployed}
        told |= {"degraded": grades.degraded, "mean_answer": grades.default, "overall": overall}
        click.echo(json.dumps(told | {"labelled": grades.labelled}))
        return
    shares = [f"A_o, {share:.3g}" for share in unavailable]
    table = Table("missing", "of", "A_a", "A_d", "mean answer", *shares, box=None)
    for n, degraded in grades.degraded.items():
        figures = (grades.deployed, degraded, grades.default, *(overall[share][n] for share in unavailable))
        table.add_row(str(n), str(card.k), *map(_percent, figures))
    Console(highlight=False).print(table)
    _tell_truth(grades)


def _tell_truth(grades: Grades) -> None:
    if not grades.labelled:
        click.echo("the queries have no 'label': graded by the deployed model's own answers")


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"
