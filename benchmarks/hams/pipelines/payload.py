"""Requests for each service, made from a seed: `NAME(index)` is the query with that index, and always the same.

Streams interleave: query i belongs to stream i % STREAMS and is its next one, so a stream's queries are in order.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from benchmarks.hams.pipelines import speech, stocks
from benchmarks.hams.pipelines.labelling import pictures
from benchmarks.hams.pipelines.scenes import Shot, drive

STREAMS = 8
LENGTH = 48  # requests of a stream; then another begins under another name
TAUGHT = 4  # of five pictures
Query = dict[str, Any]


def place(index: int) -> tuple[str, int, int]:
    """Name, seed and position of the stream's request that the query with this index is."""
    turn, stream = divmod(index, STREAMS)
    life, at = divmod(turn, LENGTH)
    return f"s{stream}-{life}", 1_000_000 + life * STREAMS + stream, at


@lru_cache(maxsize=2 * STREAMS)
def told(seed: int) -> speech.Talk:
    """The whole talk of a stream."""
    return speech.talk(LENGTH * speech.CHUNK // speech.FRAMES, seed)


def talk(index: int, _rng: Any = None) -> Query:
    """SA: the next chunk of sound of a stream."""
    name, seed, at = place(index)
    made, part = told(seed), slice(at * speech.CHUNK, (at + 1) * speech.CHUNK)
    return {"stream": name, "sound": made.sound[part]}


@lru_cache(maxsize=2 * STREAMS)
def _returns(seed: int) -> Any:
    return stocks.returns(LENGTH, seed)


def tick(index: int, _rng: Any = None) -> Query:
    """SP: the next return of a share."""
    name, seed, at = place(index)
    return {"share": name, "change": float(_returns(seed)[at])}


@lru_cache(maxsize=2 * STREAMS)
def _drive(seed: int) -> list[Shot]:
    return drive(LENGTH, 2 * seed + 1)


def shot(index: int) -> Shot:
    """AP: the next frame of a camera, and the truth about it."""
    _, seed, at = place(index)
    return _drive(seed)[at]


def frame(index: int, _rng: Any = None) -> Query:
    """AP: the next frame of a camera."""
    return {"camera": place(index)[0], "frame": shot(index).frame}


def pair(index: int, _rng: Any = None) -> Query:
    """FD: the next frames of two cameras side by side; the right one sees the left one's scene moved by two pixels."""
    left = shot(index).frame
    return {"camera": place(index)[0], "left": left, "right": np.roll(left, -2, axis=1)}


def picture(index: int, _rng: Any = None) -> Query:
    """OL: a picture that teaches, or, one in five, only asks."""
    return pictures(1, 5_000_000 + index, taught=index % 5 < TAUGHT)[0]
