"""What a user's code raised: one line for the query's outcome, and the traceback for the log.

A model that fails on every query would fill the log, so each place in the code is logged with its traceback once a
minute; what it raised in between is counted.
"""

from __future__ import annotations

import logging
import sysconfig
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spillway.agents.models import contract
from spillway.agents.models.contract import text_of
from spillway.lineage.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)

LOG_SECONDS: Final = 60.0
_MOST_PLACES: Final = 100
_NOT_THE_USERS: Final = (
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    str(Path(__file__).parents[2]),  # spillway/
)


class ModelRaisedError(ModelError):
    """A model raised in a process of its own. The text is `words_of` the error there, `trace` its traceback."""

    def __init__(self, text: str, trace: str = "") -> None:
        super().__init__(text)
        self.trace = trace


def words_of(error: BaseException) -> str:
    """Name an error and the last line of the user's own code on its way, as in `ValueError: no (models.py:7 in f)`.

    Of a ModelError it is the text alone. It never raises, whatever the error's class does.
    """
    if isinstance(error, ModelError):
        return text_of(error)
    frame = _frame_of(error)
    where = f" ({_short(frame.filename)}:{frame.lineno} in {frame.name})" if frame is not None else ""
    return f"{type(error).__name__}: {text_of(error)}{where}"


def trace_of(error: BaseException) -> str:
    return error.trace if isinstance(error, ModelRaisedError) else contract.trace_of(error)


class RaisedLog:
    """The log of what one stage's user code raises. Safe for several threads: a race only logs once more."""

    def __init__(self, stage: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._stage = stage
        self._clock = clock
        self._logged: dict[str, tuple[float, int]] = {}  # place -> when it was logged, and how often it raised since

    def words(self, error: BaseException, doing: str = "the model", about: Mapping[str, object] | None = None) -> str:
        """Log an error, raised by `doing` for the query that `about` names; return what it says."""
        words = words_of(error)
        place, now = _place_of(error, words), self._clock()
        at, since = self._logged.get(place, (now - LOG_SECONDS, 0))
        if now - at < LOG_SECONDS:
            self._logged[place] = (at, since + 1)
            return words
        again = f" ({since} more times in the {now - at:.0f} s before)" if since else ""
        trace = trace_of(error).rstrip()
        log.error("stage %r: %s raised%s: %s\n%s", self._stage, doing, again, words, trace, extra=about)
        self._logged.pop(place, None)
        self._logged[place] = (now, 0)
        if len(self._logged) > _MOST_PLACES:
            del self._logged[next(iter(self._logged))]
        return words


def _frame_of(error: BaseException) -> traceback.FrameSummary | None:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    users = [frame for frame in frames if not frame.filename.startswith(_NOT_THE_USERS)]
    return next(reversed(users or frames), None)


def _place_of(error: BaseException, words: str) -> str:
    """Return where an error was raised, whatever its text."""
    if isinstance(error, ModelRaisedError):
        lines, text = error.trace.splitlines(), words.partition("\n")
        if text[1]:  # a text of several lines may have anything in it
            lines = lines[: next((n for n, line in enumerate(lines) if line.endswith(text[0])), None)]
        places = [line for line in lines if line.lstrip(" |").startswith('File "')]  # a group's are indented
        return places[-1] if places else words
    frame = _frame_of(error)
    return words if frame is None else f"{type(error).__name__} {frame.filename}:{frame.lineno}"


def _short(filename: str) -> str:
    path = Path(filename)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else path.name
