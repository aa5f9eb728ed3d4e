"""`spillway models`: what is registered, why a query was answered by which variant, which features a model serves."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING, Any, Final

import click

from spillway.agents.cli.choices import choices, explained
from spillway.agents.cli.cluster import Source, find_cluster, from_source
from spillway.agents.cli.options import FOLDER, LazyGroup, cluster_options, json_option, name_argument, run_dir_option
from spillway.agents.cli.state_telling import Grid
from spillway.lineage.errors import UsageError
from spillway.producers.models import Models, put
from spillway.topology import names
from spillway.topology.variants.manifest import newest

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from spillway.topology.variants.manifest import Generated, Manifest

_WIDTH: Final = 80  # characters of a line
_app = click.option("--app", metavar="NAME", help="The application.")


GENERATIONS: Final = {
    "generations": "List the generations of a Velox model's features.",
    "history": "Show who asked for each generation, why, and what came of it.",
    "switch": "Switch at once to another generation that is kept.",
    "rollback": "Go back to the other generation that is kept.",
}


@click.group(cls=LazyGroup, texts=GENERATIONS, modules=dict.fromkeys(GENERATIONS, "generations"))
def models() -> None:
    """Register models, list them, and show why one answered; list, switch and roll back a Velox model's features.

    Variants are generated from a registered model: in several precisions and formats, each measured on the validation
    set. A stage whose 'variants:' lists none serves the registered ones of its application. docs/infaas.md has more.

    \b
    Example:
      spillway models register cnn zoo:digit_cnn --app digits --validation zoo:digits
      spillway models list
    """  # noqa: D301 - click's own marks


@models.command()
@click.argument("name")
@click.argument("model")
@click.option("--app", required=True, metavar="NAME", help="Application of the model.")
@click.option(
    "--validation", required=True, metavar="SET", help="module:function that returns (inputs, labels), or an .npz."
)
@click.option(
    "--threads",
    default="1",
    show_default=True,
    metavar="N,...",
    help="Threads of a worker; makes a variant for each number.",
)
@click.option(
    "--hardware", default="cpu,cuda", show_default=True, metavar="KIND,...", help="Devices to make variants for."
)
@click.option(
    "--repository",
    envvar="SPILLWAY_MODELS",
    default=".spillway/models",
    show_default=True,
    type=FOLDER,
    help="Folder for the files, visible to all hosts.",
)
@cluster_options
def register(
    name: str, model: str, bootstrap: str | None, client_config: Path | None, threads: str, hardware: str, **told: Any
) -> None:
    """Generate, measure and register the variants of a trained model, as the next version of NAME.

    MODEL is a module:callable that returns a torch.nn.Module with a score for each class, or a fitted classifier of
    scikit-learn. Each variant is built from it without training: eager, bf16, int8, ONNX, ONNX in int8. What cannot be
    built here is listed with the reason. No pickle is stored. A stage that serves the application keeps the old version
    until the new one is ready.

    \b
    Example: spillway models register tree zoo:tree --app digits --validation zoo:digits --threads 1,2
    """  # noqa: D301
    from spillway.agents.registry.register import register_model  # noqa: PLC0415 - not to list

    counts = sorted({int(each) for each in threads.split(",") if each.strip().isdecimal()})
    if len(counts) < len(threads.split(",")) or counts[0] < 1:
        raise UsageError(f"--threads: {threads!r} is not a list of numbers of threads; write 1,2")
    made = register_model(
        find_cluster(bootstrap, client_config),
        name,
        model,
        threads=counts,
        hardware=hardware.split(","),
        say=click.echo,
        **told,
    )
    click.echo(f"{name} version {made.version} of {made.app} is registered: {len(made.variants)} variants")


@models.command("list")
@_app
@cluster_options
@json_option
def list_(app: str | None, bootstrap: str | None, client_config: Path | None, *, as_json: bool) -> None:
    """List the registered models: the newest version of each.

    \b
    Example: spillway models list --app digits
    """  # noqa: D301
    found = sorted(newest(_read(bootstrap, client_config), app).items())
    if as_json:
        click.echo(json.dumps([each.model_dump(mode="json", by_alias=True) for _, each in found]))
        return
    rows = [
        (
            *(each.app, each.name, str(each.version), str(len(each.variants)), str(len(each.left_out))),
            _range(variant.accuracy for variant in each.variants),
            _range(1e3 * variant.takes[1] for variant in each.variants),
        )
        for _, each in found
    ]
    title = f"{len(rows)} registered models" if rows else "no model is registered; 'spillway models register' does it"
    heads = ("app", "model", "version", "variants", "not built", "accuracy", "ms alone")
    Grid(title, heads, rows, right=(2, 3, 4, 5, 6)).show()


def _range(values: Iterable[float]) -> str:
    found = sorted(values)
    low, high = f"{found[0]:.3g}", f"{found[-1]:.3g}"
    return low if low == high else f"{low}..{high}"


@models.command()
@click.argument("name")
@_app
@click.option("--version", type=click.IntRange(1), help="Which one.  [default: the newest]")
@cluster_options
@json_option
def show(
    name: str, app: str | None, version: int | None, bootstrap: str | None, client_config: Path | None, *, as_json: bool
) -> None:
    """Show one model: its variants and their profiles, and what could not be built.

    \b
    Example: spillway models show cnn --app digits
    """  # noqa: D301
    found = _one(_read(bootstrap, client_config), name, app, version)
    if as_json:
        click.echo(found.model_dump_json(by_alias=True))
        return
    title = f"{found.app}: {found.name} version {found.version}, by {found.by}, {found.validated} queries"
    heads = ("variant", "accuracy", "ms of 1", f"of {_largest(found)}", "peak/s", "batch", "load s", "MB", "file kB")
    Grid(title, heads, [_row(found, each) for each in found.variants], right=tuple(range(1, 9))).show()
    for none in found.left_out:
        threads = "" if none.threads is None else f", {none.threads} threads"
        text = f"not built: {none.format} on {none.device}{threads}: {none.why}"
        click.echo(textwrap.fill(text, _WIDTH, subsequent_indent="  "))
    click.echo(f"files in {found.repository}")


def _largest(manifest: Manifest) -> int:
    return max(max(each.takes) for each in manifest.variants)


def _row(manifest: Manifest, each: Generated) -> tuple[str, ...]:
    last = each.takes.get(_largest(manifest))
    return (
        each.key,
        f"{each.accuracy:.4f}",
        f"{1e3 * each.takes[1]:.2f}",
        "-" if last is None else f"{1e3 * last:.2f}",
        f"{each.saturation:.0f}",
        str(each.batch),
        f"{each.profile.load or 0:.1f}",
        f"{each.memory / 1e6:.0f}",
        f"{each.size / 1e3:.0f}",
    )


@models.command("drop")
@click.argument("name")
@_app
@click.option("--version", type=click.IntRange(1), help="Which one.  [default: the newest]")
@cluster_options
def drop_(name: str, app: str | None, version: int | None, bootstrap: str | None, client_config: Path | None) -> None:
    """Withdraw a version of a model; the previous one is served again. Its files stay.

    \b
    Example: spillway models drop cnn --app digits
    """  # noqa: D301
    settings = find_cluster(bootstrap, client_config)
    with Models(settings) as table:
        found = _one(table.require().values(), name, app, version)
    put(settings, found.model_copy(update={"taken_back": True}))
    click.echo(f"{found.name} version {found.version} of {found.app} is withdrawn")


def _read(bootstrap: str | None, client_config: Path | None) -> list[Manifest]:
    with Models(find_cluster(bootstrap, client_config)) as table:
        return list(table.require().values())


def _one(manifests: Iterable[Manifest], name: str, app: str | None, version: int | None) -> Manifest:
    """The version of a model. Raises UsageError that says which there are."""
    every = [each for each in manifests if app in (None, each.app) and not each.taken_back]
    named = [each for each in every if each.name == name and version in (None, each.version)]
    apps = sorted({each.app for each in named})
    if len(apps) > 1:
        raise UsageError(f"{name!r} is registered of {', '.join(apps)}; choose one with --app")
    if not named:
        known = sorted({f"{each.name} version {each.version}" if version else each.name for each in every})
        which = name if version is None else f"{name} version {version}"
        raise UsageError(f"there is no registered model {which!r}; {names.meant(which, known)}")
    return max(named, key=lambda each: each.version)


@models.command()
@click.argument("request")
@name_argument
@run_dir_option
@cluster_options
@json_option
def why(
    request: str,
    pipeline: str | None,
    run_dir: Path,
    bootstrap: str | None,
    client_config: Path | None,
    *,
    as_json: bool,
) -> int:
    """Show why a variant answered a query.

    REQUEST is the query's id. PIPELINE is a pipeline's name or its file; it may be left out if only one is served from
    here. The reasons are stored with the outcome, which Kafka keeps for a day. The exit code is 1 if there is no such
    outcome, or no variant answered.

    \b
    Example: spillway models why 0b1c6a9e digits
    """  # noqa: D301
    from spillway.agents.live.operator.released import released  # noqa: PLC0415 - not to list
    from spillway.agents.supervise.registry import known  # noqa: PLC0415

    served = known(run_dir) if pipeline is None else [pipeline]
    if len(served) != 1:
        raise UsageError(f"name the pipeline: {', '.join(served) or 'none was served from here'}")
    settings = find_cluster(bootstrap, client_config, run_dir=run_dir, pipeline=served[0])
    outcome = released(settings, served[0], request)
    if outcome is None:
        click.echo(f"{served[0]} has released no outcome of {request!r} in the last day", err=True)
        return 1
    told = choices(outcome.flags)
    if as_json:
        click.echo(json.dumps({"kind": outcome.kind, "reason": outcome.reason, "choices": told}))
    else:
        reason = f" ({outcome.reason}: {outcome.text})" if outcome.reason else ""
        click.echo(f"{request}: {outcome.kind}{reason}")
        for stage, flags in told.items():
            for line in explained(stage, flags):
                click.echo(line)
        if not told:
            click.echo("no variant answered it")
    return 0 if told else 1


@models.command("train", hidden=True)
@from_source
@click.option("--current", type=click.IntRange(0), required=True)
@click.option("--parent", type=int)
def train_(source: Source, current: int, parent: int | None) -> None:
    """Train for a model manager, and print the result."""
    from spillway.agents.supervise.retraining import trained  # noqa: PLC0415 - only here

    if parent is not None:
        from spillway.agents.supervise.parent import follow_parent  # noqa: PLC0415

        follow_parent(parent)
    click.echo(json.dumps(trained(source.pipeline, source.settings, current)))
