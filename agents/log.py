"""How a process logs: where to, in which form, and what is left out.

A client that finds no broker says so at each attempt, which is some twenty times a second for each of its connections.
Each of Faust's services says at every start, on a line of its own, that it starts: that is for who debugs Faust.

What a process starts logs as it does, by an environment variable (`as_parent`). Nothing but Python's own library is
imported here, as a worker may run in an interpreter without Spillway.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import datetime, timezone
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
TEXT, JSON = "text", "json"
_VARIABLE = "SPILLWAY_LOG"  # how this process logs, for those that it starts
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


class TextFormatter(logging.Formatter):
    """A line for a person, with the id of the query that it is about, if it is about one."""

    def __init__(self) -> None:
        super().__init__(_FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Format the line; the traceback of an exception follows it."""
        first, *more = super().formatMessage(record).split("\n", 1)
        request_id = getattr(record, "request_id", "")
        return "\n".join((f"{first} [request {request_id}]" if request_id else first, *more))


class JsonFormatter(logging.Formatter):
    """A JSON object a line. What a record does not know is null."""

    def __init__(self, stage: str | None, replica: int | None) -> None:
        super().__init__()
        self._process = {"stage": stage, "replica": replica}

    def format(self, record: logging.LogRecord) -> str:
        """Return the object; a traceback is part of its message."""
        message = record.getMessage()
        if record.exc_info:
            message += "\n" + self.formatException(record.exc_info)
        at = datetime.fromtimestamp(record.created, timezone.utc)  # noqa: UP017 - a worker's Python may be older
        told = {
            "time": at.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": message,
            **self._process,
            "request_id": getattr(record, "request_id", None) or None,
            "trace_id": getattr(record, "trace_id", None),
        }
        return json.dumps(told, ensure_ascii=False)


def to_stderr(form: str = TEXT, stage: str | None = None, replica: int | None = None) -> None:
    """Log to stderr, as text or JSON; `stage` and `replica` say in JSON which process this is."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    _prepare(form, stage, replica)
    os.environ |= environment(form, stage, replica)


def environment(form: str, stage: str | None, replica: int | None) -> dict[str, str]:
    """Return what has a process that is started with it log so (`as_parent`)."""
    return {_VARIABLE: json.dumps({"form": form, "stage": stage, "replica": replica})}


def as_parent() -> None:
    """Log to stderr as the process does that started this one."""
    to_stderr(**json.loads(os.environ.get(_VARIABLE, "{}")))


def to_file(path: Path, form: str = TEXT, stage: str | None = None) -> None:
    logging.basicConfig(filename=path, filemode="w", level=logging.INFO)
    _prepare(form, stage, None)


def tail(file: Path, most: int) -> str:
    """Return the end of a log, so many bytes at most; empty where there is none."""
    try:
        with file.open("rb") as log:
            log.seek(max(0, log.seek(0, 2) - most))
            return log.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


def _prepare(form: str, stage: str | None, replica: int | None) -> None:
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonFormatter(stage, replica) if form == JSON else TextFormatter())
        handler.addFilter(Repetitions())
        handler.addFilter(Services())
