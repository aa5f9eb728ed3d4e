"""Noisy street scenes with a licence plate of real handwritten digits, made by a seeded generator.

The digits are scikit-learn's 1,797 8x8 images; a scene is HEIGHT x WIDTH, uint8, with the plate somewhere in it. Which
digits may be used is the caller's choice, so that training, calibration and held-out scenes share none.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

HEIGHT, WIDTH, DIGIT = 40, 144, 16
FEWEST, MOST = 4, 6
NOISE = (4.0, 46.0)  # standard deviation of the sensor noise, in grey levels, drawn per scene

Image = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Scene:
    """One picture and the truth about it."""

    image: Image  # (HEIGHT, WIDTH)
    text: str
    centres: NDArray[np.float32]  # (digits, 2): y, x
    noise: float


@lru_cache(maxsize=1)
def digit_images() -> tuple[Image, NDArray[np.int64]]:
    """The 1,797 digits, scaled up to DIGIT x DIGIT, and their labels."""
    from sklearn.datasets import load_digits  # noqa: PLC0415 - takes half a second, and stages need no digits

    bunch = load_digits()
    large = np.kron(bunch.images, np.ones((DIGIT // 8, DIGIT // 8)))
    return (large * (255 / 16)).astype(np.uint8), bunch.target.astype(np.int64)


def splits(seed: int = 7) -> dict[str, NDArray[np.int64]]:
    """Disjoint indices of digits: `train`, `calibrate` and `test` (the held-out ones)."""
    order = np.random.default_rng(seed).permutation(len(digit_images()[1]))
    return {"train": order[:1100], "calibrate": order[1100:1400], "test": order[1400:]}


def compose(rng: np.random.Generator, allowed: NDArray[np.int64]) -> Scene:
    """One scene with a plate made of digits among `allowed`."""
    images, labels = digit_images()
    count = int(rng.integers(FEWEST, MOST + 1))
    picks = rng.choice(allowed, count)
    canvas = rng.integers(30, 120) + np.cumsum(rng.normal(0, 2.0, (HEIGHT, WIDTH)), axis=1)
    for _ in range(int(rng.integers(2, 6))):  # clutter: bright and dark bars that are no digits
        y, x = rng.integers(0, HEIGHT - 4), rng.integers(0, WIDTH - 10)
        canvas[y : y + rng.integers(1, 4), x : x + rng.integers(4, 24)] += rng.integers(-70, 90)
    gaps = rng.integers(1, 5, count)
    length = count * DIGIT + int(gaps.sum())
    top = int(rng.integers(3, HEIGHT - DIGIT - 4))
    left = int(rng.integers(2, WIDTH - length - 2))
    canvas[top - 3 : top + DIGIT + 3, left - 2 : left + length + 1] = rng.integers(20, 60)
    centres = np.empty((count, 2), np.float32)
    x = left
    for place, pick in enumerate(picks):
        y = top + int(rng.integers(-2, 3))
        window = canvas[y : y + DIGIT, x : x + DIGIT]
        np.maximum(window, images[pick] * rng.uniform(0.75, 1.0), out=window)
        centres[place] = y + DIGIT / 2, x + DIGIT / 2
        x += DIGIT + int(gaps[place])
    noise = float(rng.uniform(*NOISE))
    canvas += rng.normal(0, noise, canvas.shape)
    text = "".join(str(labels[pick]) for pick in picks)
    return Scene(canvas.clip(0, 255).astype(np.uint8), text, centres, noise)


def scenes(count: int, split: str, seed: int) -> list[Scene]:
    """`count` scenes from one split; the same seed gives the same scenes everywhere."""
    rng = np.random.default_rng(seed)
    allowed = splits()[split]
    return [compose(rng, allowed) for _ in range(count)]


def fingerprint(made: list[Scene]) -> str:
    """A hash of pictures and texts, to tell that a generator still makes what it made."""
    digest = hashlib.sha256()
    for scene in made:
        digest.update(scene.image.tobytes() + scene.text.encode())
    return digest.hexdigest()
