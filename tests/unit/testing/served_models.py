"""Models of the pipelines that tests serve in memory."""

from collections import Counter

import numpy as np

RUNS = Counter()


class Opens:
    def predict(self, batch):
        return [{"x": 3 * query["x"] + 1} for query in batch]


class Doubles:
    deterministic = True

    def predict(self, batch):
        RUNS["doubles"] += len(batch)
        return [{"y": 2 * query["x"]} for query in batch]


class Twice(Doubles):
    pass


class Adds:
    def predict(self, batch):
        return [{"y": query["x"] + 7} for query in batch]


class Closes:
    def predict(self, batch):
        return [{"z": 1_000_003 * query["left.y"] + query["right.y"]} for query in batch]


class Raises:
    def predict(self, batch):
        if any(query["x"] < 0 for query in batch):
            raise ValueError("a negative x")
        return [{"x": query["x"]} for query in batch]


class Learns:
    pass


def side(outputs):
    return "left" if outputs["x"] % 2 else "right"


def closed(x):
    return 1_000_003 * 2 * (3 * x + 1) + (3 * x + 1) + 7


class Says:
    """Answers with what it was made with, or with a digit."""

    def __init__(self, label=None):
        self.label = label

    def predict(self, batch):
        return [{"label": query["x"] % 7 if self.label is None else self.label} for query in batch]


class Linear:
    """Its own parity model, exactly, as its numbers are whole."""

    def predict(self, batch):
        return [{"y": MATRIX @ query["x"]} for query in batch]


class Ends:
    """Ends its process for a negative x."""

    def predict(self, batch):
        RUNS.update(("ends", query["x"]) for query in batch)
        if any(query["x"] < 0 for query in batch):
            raise SystemExit(3)
        return [{"x": query["x"]} for query in batch]


MATRIX = np.arange(12.0).reshape(3, 4) - 5
