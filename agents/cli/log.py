"""How a process logs: where to, in which form, and what is left out.

A client that finds no broker says so at each attempt, which is some twenty times a second for each of its connections.
Each of Faust's services says at every start, on a line of its own, that it starts: that is for who debugs Faust.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_CLIENTS = "%s [%s] %s"  # facility, client, text: how confluent-kafka hands on what librdkafka logs
_FAILURE = "FAIL"  # the facility of lost and refused connections
_NO_ID = "GETPID"  # of producers that wait for a coordinator, as all do that start beside their Kafka
_SERVICE = "[^"  # how mode.Service begins its lines
_EVERY_SECONDS = 10.0
_MOST_KEPT = 1000


class Repetitions(logging.Filter):
    """Lets a client's failure pass once in `every` seconds, with how many like it there have been since.

    A wait for a coordinator is one where it takes longer than that. Failures are alike
    that the same client had with the same broker for the same reason. All else passes.
    """

    def __init__(self, every: float = _EVERY_SECONDS) -> None:
        super().__init__()
        self._every = every
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}  # client, reason: when one passed, how many have not

    def filter(self, record: logging.LogRecord) -> bool:
        if record.msg != _CLIENTS or not isinstance(record.args, tuple) or record.args[0] not in {_FAILURE, _NO_ID}:
            return True
        facility, client, text = map(str, record.args)
        key = client, text.partition(" (after ")[0]
        passed, withheld = self._seen.get(key, (record.created if facility == _NO_ID else 0.0, 0))
        if record.created - passed < self._every:
            self._seen[key] = passed, withheld + 1
            return False
        if len(self._seen) >= _MOST_KEPT:
            self._seen.clear()
        self._seen[key] = record.created, 0
        if withheld:
            record.args = (facility, client, f"{text}; and {withheld} times before this")
        return True


class Services(logging.Filter):
    """Lets the lines pass at which Faust and its services tell how they are only where debugging is on."""

    def filter(self, record: logging.LogRecord) -> bool:
        faust = str(record.msg).startswith(_SERVICE) or record.name.startswith("faust.")
        of_a_service = record.levelno == logging.INFO and faust
        return not of_a_service or logging.getLogger().level <= logging.DEBUG


def to_stderr() -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=_FORMAT)
    _leave_out()


def to_file(path: Path) -> None:
    logging.basicConfig(filename=path, filemode="w", level=logging.INFO, format=_FORMAT)
    _leave_out()


def _leave_out() -> None:
    for handler in logging.getLogger().handlers:
        handler.addFilter(Repetitions())
        handler.addFilter(Services())
