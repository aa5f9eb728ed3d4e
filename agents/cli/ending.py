"""The end of a process that has talked to Kafka.

When Python ends, it destroys what is left of librdkafka's clients, and that waits for each client's threads. A client
that had asked something of a broker which went away meanwhile may count on it for ever (librdkafka 2.16: the broker's
thread ends when nobody refers to it any more, and a lost request does), and the process would never end. All that has
to be finished has been when a command returns, so what would come after is left out.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from typing import NoReturn


def end(code: int) -> NoReturn:
    """End this process with `code` once what it has written is out. Nothing registered for its exit is run."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # nobody reads it any more
            stream.flush()
    os._exit(code)
