"""Sample queries that a user names: a recording, a file of queries, or a function that makes them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agents.profiling.samples import SAMPLES
from lineage.errors import UsageError, WireError
from lineage.limits import DEFAULT_LIMITS
from lineage.message import Query
from lineage.values.codec import Decoder
from lineage.values.json_text import read_inputs
from producers.load.payloads import find_payload
from producers.recording import is_recording, read_recording

if TYPE_CHECKING:
    from collections.abc import Iterator

    Sample = dict[str, Any]


def given_samples(source: str, seed: int) -> list[Sample]:
    """The first queries of a recording's folder, of a file of JSON objects, or of a `module:function`."""
    path = Path(source)
    if is_recording(path):
        found = list(_recorded(path))
    elif path.is_file():
        found = list(_listed(path))
    elif ":" in source:
        function, rng = find_payload(source), np.random.default_rng(seed)
        try:
            found = [dict(function(index, rng)) for index in range(SAMPLES)]
        except Exception as error:  # a user's function may raise anything
            raise UsageError(f"the sample function {source} failed: {error!r}") from error
    else:
        raise UsageError(f"there is no recording, no file of queries and no module:function {source!r} to sample from")
    if not found:
        raise UsageError(f"{source} holds no query to sample from")
    return found


def _recorded(path: Path) -> Iterator[Sample]:
    recording = read_recording(path)
    decoder = Decoder(DEFAULT_LIMITS)
    for number, query in enumerate(recording.queries()):
        if number >= SAMPLES:
            return
        try:
            message = decoder.message(query.value or b"")
        except WireError:
            continue  # a poison message was recorded as it came
        if isinstance(message, Query):
            yield message.inputs


def _listed(path: Path) -> Iterator[Sample]:
    lines = path.read_text("utf-8").splitlines()
    for number, line in enumerate(lines[:SAMPLES], start=1):
        if not line.strip():
            continue
        try:
            yield read_inputs(line)
        except WireError as error:
            raise UsageError(f"{path}:{number}: {error}; give one query's inputs a line") from error
