"""A radio's songs: features learned from ratings before they are served, and weights of listeners learned meanwhile."""

from __future__ import annotations

from typing import ClassVar

from examples.velox.ratings import World
from spillway import VeloxModel
from spillway.agents.learning.velox.als import als

SONGS, LISTENERS, EACH = 500, 300, 60


class Songs(VeloxModel):
    """Song k is called `song-k`."""

    regularization = 2.0
    songs: ClassVar[int] = SONGS
    middle: ClassVar[float] = 0.0  # what is taken off ratings, before they are learned or told

    def __init__(self, seed: int = 7, dimension: int = 9) -> None:
        users, songs, ratings = self.world(seed).ratings(min(EACH, self.songs), seed)
        shape = LISTENERS, self.songs
        self.dimension = dimension
        self.theta = f"{type(self).__name__.lower()}-{seed}-{dimension}"
        self.items = [f"song-{number}" for number in range(self.songs)]
        _, self.table = als(
            users, songs, ratings - self.middle, shape, rank=dimension, regularization=self.regularization
        )

    @classmethod
    def world(cls, seed: int = 7) -> World:
        """Whose ratings the features are learned from."""
        return World.made(LISTENERS, cls.songs, seed=seed)


class Rotation(Songs):
    """The few songs of the demonstration, on which some tens of listeners say enough in a minute to retrain from."""

    songs = 60
    middle = 3.5  # so that who has said nothing yet is not taken to hate all songs
    observations = 25  # of each listener: what was said before a drift is soon forgotten
