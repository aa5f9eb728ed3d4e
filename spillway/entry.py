"""Where the `spillway` script begins: Ctrl-C is answered in a word while the command's modules are being imported."""

from __future__ import annotations

import os
import signal

_INTERRUPTED = 130


def main() -> None:
    """Run the command."""
    signal.signal(signal.SIGINT, _interrupted)
    from spillway.agents.cli.main import main as run  # noqa: PLC0415 - what takes time comes after

    signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _interrupted(_number: int, _frame: object) -> None:
    # Nothing has begun that could be ended in good order, and an exception would be some import's error.
    os.write(2, b"interrupted\n")
    os._exit(_INTERRUPTED)
