"""Where the `spillway` script begins: Ctrl-C is answered in a word while the command's modules are being imported."""

from __future__ import annotations

import os
import signal
import sys

_MISUSED, _INTERRUPTED = 2, 130


def main() -> None:
    """Run the command, if the packages that it consists of are Spillway's."""
    signal.signal(signal.SIGINT, _interrupted)
    from spillway.foreign import ForeignPackageError, refuse_foreign  # noqa: PLC0415 - what takes time comes after

    try:
        refuse_foreign()
    except ForeignPackageError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(_MISUSED)
    from agents.cli.main import main as run  # noqa: PLC0415 - not before it is known to be ours

    signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _interrupted(_number: int, _frame: object) -> None:
    # Nothing has begun that could be ended in good order, and an exception would be some import's error.
    os.write(2, b"interrupted\n")
    os._exit(_INTERRUPTED)
