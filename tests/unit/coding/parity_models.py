import numpy as np


class Linear:
    """Whole numbers, so that sums are exact; its own parity model."""

    def __init__(self, seed=0):
        self.matrix = np.random.default_rng(seed).integers(-9, 10, (6, 12)).astype(np.float64)

    def predict(self, batch):
        return [{"y": self.matrix @ np.ravel(query["x"])} for query in batch]


class Misshapen(Linear):
    def predict(self, batch):
        return [{"other": answer["y"][:2]} for answer in super().predict(batch)]


class Labels:
    def predict(self, batch):
        return [{"label": np.int64(3)} for _ in batch]


class Product:
    """A code of a user's own, which nobody can solve."""

    def __init__(self, k):
        self.k = k

    def encode(self, queries, row):
        return {"x": np.prod([query["x"] for query in queries], axis=0)}

    def decode(self, answers, parities):
        return None


def queries():
    return {"x": np.random.default_rng(1).integers(-50, 50, (40, 3, 4)).astype(np.float64)}
