"""The root of the `spillway` command: its subcommands, imported only when called, and what its exit codes mean."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

import spillway
from spillway.agents.cli.options import LazyGroup
from spillway.lineage.errors import SpillwayError, lacking

# The end of a process that has talked to Kafka.
#
# When Python ends, it destroys what is left of librdkafka's clients, and that waits for each client's threads. A client
# that had asked something of a broker which went away meanwhile may count on it for ever (librdkafka 2.16: the broker's
# thread ends when nobody refers to it any more, and a lost request does), and the process would never end. All that has
# to be finished has been when a command returns, so what would come after is left out.


def end(code: int) -> NoReturn:
    """End this process with `code` once what it has written is out. Nothing registered for its exit is run."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # nobody reads it any more
            stream.flush()
    os._exit(code)


FAILED, MISUSED, INTERRUPTED = 1, 2, 130
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}  # a disk; a write does not know its file's name

# name -> what `spillway --help` says of it. Each is the click command `name` in `spillway.agents.cli.commands.<name>`;
# the texts stand here so that help need not import what the commands need (some need torch or Faust).
COMMANDS = {
    "serve": "Serve a pipeline: its stages and its gate, watched.",
    "gateway": "Answer HTTP requests with predictions of pipelines.",
    "worker": "Run a worker of a stage whose workers are elsewhere.",
    "broker": "Run a local Kafka; list or delete a pipeline's topics.",
    "check": "Check a pipeline file and draw its graph.",
    "predict": "Send one query, or a file of them, and get the outcomes.",
    "dead": "List, show and retry the queries that were not served.",
    "status": "Show what the processes of a served pipeline do.",
    "inspect": "Say what became of one query, and when it was where.",
    "state": "List, show, export, import and rewind states of stages.",
    "record": "Record the queries and outcomes of a running pipeline.",
    "trace": "Make, import, describe and draw traces of arrivals.",
    "change": "Change workers, members or a primary while they serve.",
    "plan": "Measure models, and find the cheapest sizes for the SLO.",
    "whatif": "Simulate traffic under other policies and sizes.",
    "replay": "Drive a pipeline with a trace or a recording and report.",
    "models": "Register and list models; switch and roll back features.",
    "train": "Train parity models and features; send feedback.",
    "prove": "Play random failures of stateful pipelines, and judge.",
    "chaos": "Stop, slow down and kill workers of a served pipeline.",
    "demo": "List the demonstrations of systems, or run one.",
}
HEADS = {
    "serve": "Serve",
    "predict": "Ask",
    "status": "Look",
    "change": "Change",
    "plan": "Plan",
    "models": "Learn",
    "prove": "Prove",
}
# How commands were called before: longer words first, where one begins another.
RENAMED = {
    "scale": "change scale",
    "ensemble": "change ensemble",
    "failover": "change failover",
    "profile": "plan profile",
    "provision": "plan provision",
    "simulate": "whatif --once",
    "topics": "broker topics",
    "offline": "predict --offline",
    "model list": "models generations",
    "model retrain": "train features",
    "model": "models",
    "parity train": "train parity",
    "parity evaluate": "train evaluate",
    "parity": "train",
    "feedback": "train feedback",
}

EXIT_CODES = """
\b
Exit codes: 0 fine, 1 the pipeline or the broker failed,
            2 bad use or bad input, 130 interrupted
"""


@click.group(
    cls=LazyGroup,
    texts=COMMANDS,
    heads=HEADS,
    renamed=RENAMED,
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="spillway", message="spillway %(version)s")
def root() -> None:
    """Prediction serving as a dataflow on Kafka: pipelines of models under a latency target.

    \b
    Example:
      spillway serve examples/hello/pipeline.yaml
      echo '{"name": "Ada"}' | spillway predict examples/hello/pipeline.yaml -
    """  # noqa: D301 - click's own marks


def run(arguments: list[str] | None = None, command: click.Command = root, name: str = "spillway") -> int:
    """Run a command line and return its exit code. Errors go to stderr as text, without a traceback."""
    try:
        result: Any = command.main(arguments, prog_name=name, standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return MISUSED
    except SpillwayError as error:
        click.echo(f"error: {error}", err=True)
        return error.exit_code
    except ModuleNotFoundError as error:
        if (text := lacking(error)) is None:  # no extra has it
            raise
        click.echo(f"error: {text}", err=True)
        return MISUSED
    except SystemExit as error:  # so do click and rich end where their output is a closed pipe
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        result = 0  # whoever read it has read enough
    except OSError as error:
        if error.filename is None and error.errno not in _FULL:  # nothing that the user could do something about
            raise
        what = f"use {error.filename}" if error.filename is not None else "write any more"
        click.echo(f"error: cannot {what}: {error.strerror}", err=True)
        return MISUSED if error.filename is not None else FAILED
    return result if isinstance(result, int) else 0


def main() -> None:
    """Entry point of the `spillway` script; finds users' models in the working directory."""
    # The processes that we spawn look for Spillway where it was found here before they come to the working directory,
    # which is last: no folder of the user's can take the place of it, or of a library.
    for place in (str(Path(spillway.__file__).parents[1]), os.getcwd()):  # noqa: PTH109 - sys.path holds strings
        if place not in sys.path:
            sys.path.append(place)
    end(run())


if __name__ == "__main__":
    main()
