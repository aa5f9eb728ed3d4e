"""Ratings made from a seed. They stand in for MovieLens 10M, which is not here: what holds for them may not hold there.

A user rates an item with 3.5 + b_u + w_u . x_i and noise of .6, rounded to half stars from .5 to 5. x_i is normal, w_u
normal around a taste that all share, b_u normal. Popular items are rated more often: item k with weight 1 / (k + 10).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

NOISE = 0.6
Numbers = NDArray[Any]


@dataclass(frozen=True)
class World:
    items: Numbers  # what they are: (items, rank)
    tastes: Numbers  # (users, rank)
    biases: Numbers  # (users,)

    @classmethod
    def made(cls, users: int, items: int, rank: int = 8, seed: int = 7) -> World:
        rng = np.random.default_rng(seed)
        shared = rng.normal(size=rank) * 0.5
        tastes = shared + rng.normal(size=(users, rank)) * 0.7
        return cls(rng.normal(size=(items, rank)) / rank**0.5, tastes, rng.normal(size=users) * 0.4)

    def worth(self, user: int) -> Numbers:
        """What a user thinks of all items, before noise and rounding."""
        worth: Numbers = 3.5 + self.biases[user] + self.items @ self.tastes[user]
        return worth

    def rated(self, user: int, items: Numbers, rng: np.random.Generator) -> Numbers:
        told = self.worth(user)[items] + rng.normal(size=len(items)) * NOISE
        return np.clip(np.round(told * 2) / 2, 0.5, 5.0)

    def ratings(self, each: int, seed: int) -> tuple[Numbers, Numbers, Numbers]:
        """Each user's first `each` ratings, of different items: users, items, ratings."""
        rng = np.random.default_rng(seed)
        popular = 1 / (np.arange(len(self.items)) + 10.0)
        popular /= popular.sum()
        users = np.repeat(np.arange(len(self.tastes)), each)
        items = [rng.choice(len(self.items), each, replace=False, p=popular) for _ in self.tastes]
        told = [self.rated(user, chosen, rng) for user, chosen in enumerate(items)]
        return users, np.concatenate(items), np.concatenate(told)
