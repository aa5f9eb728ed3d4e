"""Scenes of a road: one of scikit-learn's handwritten digits moves over noise, straight on and back from the edges."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

SIZE, DIGIT = 24, 8  # pixels
NOISE = 30.0  # standard deviation, in grey levels
AHEAD = 4  # frames: how far the predictor looks
Frame = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Shot:
    """One frame of a scene and the truth about it."""

    frame: Frame  # (SIZE, SIZE)
    label: int
    centre: NDArray[np.float32]  # (2,): y, x, in 0..1
    later: NDArray[np.float32]  # where the centre is AHEAD frames on


@lru_cache(maxsize=1)
def digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The 1,797 digits (n, 8, 8) in 0..255, and their labels."""
    from sklearn.datasets import load_digits  # noqa: PLC0415 - takes half a second, and serving needs no digits

    bunch = load_digits()
    return bunch.images * (255 / 16), bunch.target.astype(np.int64)


def drive(frames: int, seed: int) -> list[Shot]:
    """One camera's scene; the digits of even seeds and those of odd ones are different ones."""
    rng = np.random.default_rng(seed)
    images, labels = digits()
    pick = 2 * int(rng.integers(len(labels) // 2)) + seed % 2
    way = _way(rng, frames + AHEAD)
    shots = []
    for at in range(frames):
        canvas = rng.normal(50, NOISE, (SIZE, SIZE))
        y, x = np.rint(way[at]).astype(int)
        canvas[y : y + DIGIT, x : x + DIGIT] += images[pick] * 0.8
        centre, later = ((way[step] + DIGIT / 2) / SIZE for step in (at, at + AHEAD))
        frame = canvas.clip(0, 255).astype(np.uint8)
        shots.append(Shot(frame, int(labels[pick]), centre.astype(np.float32), later.astype(np.float32)))
    return shots


def _way(rng: np.random.Generator, steps: int) -> NDArray[np.float64]:
    """The upper left corner at each step: (steps, 2)."""
    most = SIZE - DIGIT
    start, speed = rng.uniform(0, most, 2), rng.uniform(0.4, 1.6, 2) * rng.choice((-1, 1), 2)
    gone = (start + speed * np.arange(steps)[:, None]) % (2 * most)
    return np.asarray(np.where(gone > most, 2 * most - gone, gone))


def drives(count: int, frames: int, seed: int) -> list[list[Shot]]:
    """Scenes of several cameras, of even seeds: what is asked about has odd ones."""
    return [drive(frames, 2 * (seed + number)) for number in range(count)]
