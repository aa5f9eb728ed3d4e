"""The files of an offline job: inputs, outputs, and beside these what it needs to go on after a crash.

A row of the outputs is one line of JSON, in the order of the inputs; what no line can hold (half of a surrogate pair,
say) makes it a row with an error. A line that is cut off is no row. `OUTPUTS.job`
names the job and its inputs, says since when its outcomes may have come that are not written, and how often those
queries have been asked; it is written anew as a whole, before anything is sent that it has to know of.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from spillway.lineage.errors import UsageError, WireError
from spillway.lineage.message import FAILED
from spillway.lineage.reasons import BAD_INPUT, BAD_RESULT
from spillway.lineage.values.json_text import read_inputs
from spillway.lineage.values.npz import read_npz
from spillway.producers.closing import Closing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

Row = dict[str, Any] | WireError
"""The inputs of a query, or what is wrong with them."""
_TOLD: Final = {"of", "job", "since", "attempts", "chunk"}
UNFIT: Final = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError)
"""What a value raises that cannot be read, sent, shown or written; it ends no job."""


class Inputs:
    """The rows of a file of JSON lines, or of an .npz, whose arrays are cut along their first axis."""

    def __init__(self, path: Path) -> None:
        """Raises UsageError for what cannot be read."""
        self.path = path
        self._arrays: dict[str, NDArray[Any]] | None = None
        try:
            if path.suffix == ".npz":
                self._arrays = read_npz(path)
            self.count = self._counted()
        except (OSError, ValueError) as error:
            raise UsageError(f"{path}: cannot be read: {error}") from error

    def _counted(self) -> int:
        if self._arrays is None:
            with self.path.open("rb") as lines:
                return sum(1 for _ in lines)
        lengths = {name: len(array) if array.ndim else 0 for name, array in self._arrays.items()}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"its arrays must have as many rows each, not {lengths}")
        return next(iter(lengths.values()))

    def rows(self, start: int) -> Iterator[tuple[int, Row]]:
        """The rows from number `start` on, each with its number."""
        if self._arrays is not None:
            for number in range(start, self.count):
                yield number, {name: array[number] for name, array in self._arrays.items()}
            return
        number = -1
        with self.path.open("rb") as lines:
            for number, line in enumerate(islice(lines, self.count)):
                if number >= start:
                    yield number, _read(line, number)
        if number + 1 < self.count:
            raise UsageError(f"{self.path} has lost lines since the job began: name another file for outputs")


def _read(line: bytes, number: int) -> Row:
    try:
        return read_inputs(line)
    except WireError as error:
        return WireError(error.reason, f"line {number + 1}: {error}")
    except UNFIT as error:
        return WireError(BAD_INPUT, f"line {number + 1}: {words_of(error)}")


def words_of(error: Exception) -> str:
    """Name an error that some value has caused."""
    return f"{type(error).__name__}: {error}"


def error_row(number: int, kind: str, reason: str, text: str) -> dict[str, Any]:
    return {"row": number, "error": {"kind": kind, "reason": reason, "text": text}}


def _line_of(row: Mapping[str, Any]) -> tuple[bytes, bool]:
    """A row as a line, and whether it has an error."""
    try:
        return json.dumps(row, ensure_ascii=False, allow_nan=False).encode() + b"\n", "error" in row
    except UNFIT as error:
        told = row.get("error") or {"kind": FAILED, "reason": BAD_RESULT, "text": f"no line of JSON: {words_of(error)}"}
    told = {name: str(text).encode("utf-8", "backslashreplace").decode() for name, text in told.items()}
    return json.dumps({"row": row["row"], "error": told}, ensure_ascii=False).encode() + b"\n", True


class Outputs(Closing):
    """The rows that are written, and the job that writes them. A context; nobody else writes meanwhile."""

    def __init__(self, path: Path, inputs: Path, asks: Mapping[str, Any]) -> None:
        """`asks`: the pipeline, and what is asked of it. Raises UsageError where the outputs are another job's."""
        self.path, self._job_file = path, path.with_name(path.name + ".job")
        with inputs.open("rb") as stream:
            content = hashlib.file_digest(stream, "sha256").hexdigest()
        self._frame = {"inputs": str(inputs.resolve()), "content": content, **asks}
        if path.exists() and not path.is_file():
            raise UsageError(f"{path} is not a file that a job can go on with; name another for outputs")
        self._file = path.open("ab")
        try:
            self._begin()
        except UsageError:
            self._file.close()
            raise

    def _begin(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UsageError(
                f"{self.path}: another command is writing it; wait for it, or name another file"
            ) from error
        told = self._told()
        self.job: str = told["job"] if told else os.urandom(8).hex()
        self.since: float | None = told["since"] if told else None
        """Unix seconds: outcomes that came before are written."""
        self.attempts: dict[int, int] = {int(row): n for row, n in told["attempts"].items()} if told else {}
        """How often queries that are not written were asked before, by row."""
        self.chunk: int = told["chunk"] if told else 0
        """How many queries may be under way that are not written."""
        self.written = self._kept()

    def _told(self) -> dict[str, Any] | None:
        try:
            told: Any = json.loads(self._job_file.read_text("utf-8"))
        except FileNotFoundError:
            if self.path.stat().st_size:
                raise UsageError(f"{self.path} is there, and no offline job's: name another file for outputs") from None
            return None
        except ValueError as error:
            raise UsageError(f"{self._job_file} cannot be read: {error}; name another file for outputs") from error
        if not isinstance(told, dict) or told.keys() != _TOLD:
            raise UsageError(f"{self._job_file} cannot be read: it is no job's; name another file for outputs")
        if told["of"] != self._frame:
            other = sorted(name for name in self._frame if told["of"].get(name) != self._frame[name])
            raise UsageError(
                f"{self.path} is of a job with another {' and '.join(other)} ({self._job_file}): "
                "name another file for outputs, or remove both"
            )
        return told

    def _kept(self) -> int:
        """How many rows are there; what was cut off is taken away."""
        rows = kept = 0
        with self.path.open("rb") as lines:
            for line in lines:
                if line.endswith(b"\n"):
                    rows, kept = rows + 1, kept + len(line)
        self._file.truncate(kept)
        return rows

    def note(self, since: float, attempts: Mapping[int, int], chunk: int) -> None:
        """Keep what whoever goes on has to know."""
        self.since = since
        told = {"of": self._frame, "job": self.job, "since": since, "attempts": dict(attempts), "chunk": chunk}
        new = self._job_file.with_name(self._job_file.name + ".new")
        new.write_text(json.dumps(told), "utf-8")
        new.replace(self._job_file)

    def write(self, rows: list[dict[str, Any]]) -> int:
        """Write rows; gives how many of them have an error, those that no line can hold too."""
        lines = [_line_of(row) for row in rows]
        self._file.write(b"".join(line for line, _ in lines))
        self._file.flush()
        self.written += len(rows)
        return sum(failed for _, failed in lines)

    def close(self) -> None:
        self._file.close()
