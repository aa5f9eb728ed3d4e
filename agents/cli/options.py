"""Options that several commands share.

With the commands themselves and `ClientSettings.load`, the only place that reads the environment.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from spillway.lineage.errors import UsageError
from spillway.topology import quantities

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_Command = TypeVar("_Command", bound="Callable[..., Any] | click.Command")


class LazyGroup(click.Group):
    """A group whose command `a-b` is `a_b` in `<package>.a_b`, or in the module of `modules`, imported when called.

    `texts` has what the group's help says of each, so that help imports nothing of what the commands need; `heads` has
    the headings of the first commands of sections. Commands may be added as to any group. `renamed` has the words that
    commands were called by before: they run the command of the new words, and say these. An unknown command is answered
    with the nearest one that there is.
    """

    def __init__(
        self,
        *arguments: Any,
        texts: Mapping[str, str] | None = None,
        package: str = "spillway.agents.cli.commands",
        modules: Mapping[str, str] | None = None,
        heads: Mapping[str, str] | None = None,
        renamed: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._texts, self._package, self._modules = texts or {}, package, modules or {}
        self._heads, self._renamed = heads or {}, renamed or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *self._texts]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._texts:
            return super().get_command(ctx, cmd_name)
        name = cmd_name.replace("-", "_")
        module = importlib.import_module(f"{self._package}.{self._modules.get(cmd_name, name)}")
        command = getattr(module, name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        for old, new in self._renamed.items():
            words = old.split()
            if args[: len(words)] == words:
                if not ctx.resilient_parsing:  # no shell that completes a line
                    click.echo(f"'spillway {old}' is now 'spillway {new}'", err=True)
                args = [*new.split(), *args[len(words) :]]
                break
        known, name = self.list_commands(ctx), args[0]
        if name not in known and not name.startswith("-"):
            close = get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
            ctx.fail(f"no such command {name!r}: {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if not self._texts:
            super().format_commands(ctx, formatter)
            return
        width = max((len(head) + 2 for head in self._heads.values()), default=0)
        added = {name: each.get_short_help_str(99) for name, each in self.commands.items() if not each.hidden}
        texts = {**added, **self._texts}
        rows = [(f"{self._heads.get(name, ''):{width}}{name}", text) for name, text in texts.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


FILE = click.Path(path_type=Path, dir_okay=False)
FOUND_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)
FOLDER = click.Path(path_type=Path, file_okay=False)
FACTOR = click.FloatRange(0, min_open=True)  # so many times as much, or as fast


def seconds(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    """Read a duration such as 2s or 400ms; a bare number is seconds. A callback for click."""
    if value is None:
        return None
    try:
        number = float(value)
    except ValueError:
        try:
            number = quantities.duration(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    if not 0 <= number < math.inf:
        raise click.BadParameter(f"{value} is not a duration: give 0 or more seconds")
    return number


def positive(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    number = seconds(context, parameter, value)
    if number == 0:
        raise click.BadParameter("must be above 0")
    return number


def http_url(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """Read a base URL, without a slash at its end. A callback for click."""
    if value is None:
        return None
    try:
        url = urlsplit(value)
        usable = url.scheme in {"http", "https"} and url.hostname and url.port != 0
    except ValueError:  # a port that is none
        usable = False
    if not usable or url.query or url.fragment or url.username is not None or not value.isascii() or " " in value:
        raise click.BadParameter(f"{value!r} is not a URL such as http://127.0.0.1:4318")
    return value.rstrip("/")


DEFAULT_RUN_DIR = Path(".spillway/run")
DEFAULT_BROKER_DIR = Path(".spillway/broker")

_BROKER_DIR = "spillway.broker_dir"  # in the context of a command


class _PipelineFile(click.ParamType):
    """A file that is there, a learner of one, or the name of a pipeline that was served from here."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        given = Path(value)
        if _written(given).is_file():
            return given
        from spillway.agents.supervise import registry  # noqa: PLC0415 - not for a file

        # Where processes are registered: --run-dir, where a command has it, else as its default.
        told = None if ctx is None else ctx.params.get("run_dir")
        run_dir = Path(told or os.environ.get("SPILLWAY_RUN_DIR") or DEFAULT_RUN_DIR)
        name, mark, learner = str(value).partition("#")
        served = registry.file_of(run_dir, name) if given.name == str(value) else None
        if served is not None and _written(served).is_file():
            return served.with_name(f"{served.name}{mark}{learner}")
        known = ", ".join(registry.known(run_dir))
        others = f" (known under {run_dir}: {known})" if known else ""
        raise click.BadParameter(
            f"there is no file {str(value)!r}, and no pipeline with that name was served from here{others}", ctx, param
        )


def _written(file: Path) -> Path:
    """The file in which a pipeline, or a learner of one, stands."""
    return file.with_name(file.name.rpartition("#")[0]) if "#" in file.name and not file.exists() else file


class _PipelineName(click.ParamType):
    """A pipeline's name; of a file, that of the pipeline in it."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        given = Path(value)
        if _written(given).is_file():
            from spillway.topology.load import load  # noqa: PLC0415 - a name needs nothing

            return load(given, profiled=False).spec.name
        if given.suffix or given.name != str(value):
            raise click.BadParameter(f"there is no file {str(value)!r}", ctx, param)
        return str(value).replace("#", "-")  # as a learner's own pipeline is called


def cache_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "spillway"


def given(name: str) -> bool:
    """Whether a parameter was given on the command line, and not by the environment or a default."""
    context = click.get_current_context(silent=True)
    return context is not None and context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def broker_dir() -> Path:
    context = click.get_current_context(silent=True)
    return DEFAULT_BROKER_DIR if context is None else context.meta.get(_BROKER_DIR, DEFAULT_BROKER_DIR)


def confirmed(what: str, *, yes: bool) -> None:
    """Ask whether to `what`, unless `yes`. Raises UsageError where nobody can be asked, Abort for a no."""
    if not yes and not sys.stdin.isatty():
        raise UsageError(f"this would {what}; there is no terminal to ask, so confirm with --yes")
    if not yes:
        click.confirm(f"{what[0].upper()}{what[1:]}?", abort=True)


# What callbacks make of values ------------------------------------------------------------------------------------


def sizes(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> list[dict[str, int]]:
    """Read numbers by stage, as detect=2,recognise=3. A callback for click."""
    found = []
    for value in values:
        numbers: dict[str, int] = {}
        for part in value.split(","):
            stage, _, number = part.partition("=")
            if not stage.strip() or not number.strip().isdecimal():
                raise click.BadParameter(f"{value!r} is not a size such as detect=2 or detect=2,recognise=3")
            numbers[stage.strip()] = int(number)
        found.append(numbers)
    return found


def _chosen(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for value in values:
        stage, _, choices = value.partition("=")
        try:
            pairs = [choice.rpartition(":") for choice in choices.split(",")]
            found[stage] = {name.strip(): float(probability) for name, _, probability in pairs}
        except ValueError:
            raise click.BadParameter(f"{value!r} is not a choice such as detect=car:.3,person:.6,:.1") from None
    return found


_PERIOD = 0.02, 60.0  # seconds


def _period(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    period = seconds(context, parameter, value)
    if period is not None and not _PERIOD[0] <= period <= _PERIOD[1]:
        raise click.BadParameter(f"{value} is not from {_PERIOD[0]:g} to {_PERIOD[1]:g} seconds")
    return period


def _look_beside(_context: click.Context, _parameter: click.Parameter, pipeline: Path) -> Path:
    beside = str(pipeline.parent.absolute())
    if beside not in sys.path:
        sys.path.append(beside)  # last, so that it takes no other module's place
    return pipeline


# Arguments and options --------------------------------------------------------------------------------------------


def _folder_option(variable: str, default: Path, text: str, *names: str, **more: Any) -> Callable[[_Command], _Command]:
    shown = f"{text}  [default: ${variable}, else {default}]"
    return click.option(*names, envvar=variable, type=FOLDER, default=default, metavar="DIR", help=shown, **more)


def broker_dir_option(*names: str) -> Callable[[_Command], _Command]:
    text = "Where the local Kafka keeps its data."
    return _folder_option("SPILLWAY_BROKER_DIR", DEFAULT_BROKER_DIR, text, *names)


def timeout_option(default: str) -> Callable[[_Command], _Command]:
    text = f"How long to wait.  [default: {default}]"
    return click.option("--timeout", default=default, callback=seconds, metavar="TIME", help=text)


# A pipeline file, or the name of one that was served from here, either with #LEARNER for a learner of it. Models are
# found in the working directory, then beside the file.
pipeline_argument = click.argument("pipeline", type=_PipelineFile(), callback=_look_beside)
listed_pipelines = click.argument("pipelines", metavar="PIPELINE...", type=_PipelineFile(), nargs=-1, required=True)
# A pipeline's name or its file, of a command that needs the name alone; None where it is left out.
name_argument = click.argument("pipeline", type=_PipelineName(), required=False)

bootstrap_option = click.option(
    "--bootstrap",
    envvar="SPILLWAY_BOOTSTRAP",
    metavar="HOST:PORT,...",
    help="Kafka cluster to use.  [default: $SPILLWAY_BOOTSTRAP]",
)
client_config_option = click.option(
    "--client-config",
    envvar="SPILLWAY_CLIENT_CONFIG",
    type=FOUND_FILE,
    metavar="FILE",
    help="File of client settings (SASL, TLS).  [default: $SPILLWAY_CLIENT_CONFIG]",
)
_local_option = _folder_option(
    "SPILLWAY_BROKER_DIR",
    DEFAULT_BROKER_DIR,
    "Use the local Kafka in this folder, whatever SPILLWAY_BOOTSTRAP names.",
    "--broker-dir",
    expose_value=False,
    callback=lambda context, _parameter, folder: context.meta.update({_BROKER_DIR: folder}),
)
# Eager, so that it is known when PIPELINE is looked up by its name.
run_dir_option = _folder_option(
    "SPILLWAY_RUN_DIR", DEFAULT_RUN_DIR, "Where running processes are registered.", "--run-dir", is_eager=True
)
# Of the policies' synchronisation; None where it is left to them.
plan_period_option = click.option(
    "--plan-period",
    callback=_period,
    metavar="TIME",
    help="How often stages exchange the state of their policies.  [default: (by policy); "
    f"{_PERIOD[0]:g} to {_PERIOD[1]:g}]",
)
choose_option = click.option(
    "--choose",
    callback=_chosen,
    multiple=True,
    metavar="STAGE=NAME:P,...",
    help="How likely a stage's choices are; several successors as a+b:.5, none as :.1.",
)
output_option = click.option("-o", "--output", type=FILE, metavar="FILE", help="Write the report there, as JSON.")
html_option = click.option("--html", type=FILE, metavar="FILE", help="Write the report there as a page, with charts.")
trace_duration_option = click.option(
    "--duration", callback=positive, metavar="TIME", help="Use only so much of the trace, from its start."
)
why_option = click.option("--why", default="", metavar="TEXT", help="Reason, stored with the change.")
log_format = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How the processes log.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def cluster_options(command: _Command) -> _Command:
    """--bootstrap, --client-config and --broker-dir: the cluster that a client of a pipeline uses (`find_cluster`)."""
    return bootstrap_option(client_config_option(_local_option(command)))


def metrics_options(command: _Command) -> _Command:
    """--metrics-host and --metrics-port: where a process serves its metrics; the port is None for one that is free."""
    text = "Port of /metrics, /healthz and /readyz; processes use the next ports, in order.  [default: free ones]"
    port = click.option("--metrics-port", type=click.IntRange(1, 65_000), metavar="PORT", help=text)
    text = "Address to listen on for /metrics."
    host = click.option("--metrics-host", default="127.0.0.1", show_default=True, metavar="HOST", help=text)
    return host(port(command))
