"""A radio's songs: features learned from ratings before they are served, and weights of listeners learned meanwhile."""

from __future__ import annotations

from agents.learning.velox.als import als
from examples.velox.ratings import World
from spillway import VeloxModel

SONGS, LISTENERS, EACH = 500, 300, 60


class Songs(VeloxModel):
    """Song k is called `song-k`."""

    regularization = 2.0

    def __init__(self, seed: int = 7, dimension: int = 9) -> None:
        users, songs, ratings = World.made(LISTENERS, SONGS, seed=seed).ratings(EACH, seed)
        shape = LISTENERS, SONGS
        self.dimension = dimension
        self.theta = f"songs-{seed}-{dimension}"
        self.items = [f"song-{number}" for number in range(SONGS)]
        _, self.table = als(users, songs, ratings, shape, rank=dimension, regularization=self.regularization)
