"""Models of the pipelines that tests serve in memory."""

import asyncio
from collections import Counter
from types import MappingProxyType

import numpy as np

from spillway import Flagged

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


class Pass:
    def predict(self, batch):
        return batch


class Square:
    """Its answer is a function of its input, so that a mix-up shows."""

    def predict(self, batch):
        return [{"y": query["x"] ** 2, "id": query.request_id} for query in batch]


class Fragile:
    """Does what its inputs say."""

    STRANGE = MappingProxyType({"text": "no mapping", "object": {"y": object()}, "huge": {"y": b"x" * 20_000_000}})

    def predict(self, batch):
        if any(query.get("act") == "raise" for query in batch):
            raise ValueError("cannot stand this one")
        return [self.STRANGE.get(query.get("act"), {"y": query["x"]}) for query in batch if query.get("act") != "short"]


class Tells:
    """Flags what it answers with what `tell` says of the query."""

    def __init__(self, tell="sure"):
        self.tell = TELLS[tell]

    def predict(self, batch):
        return [Flagged({"x": x}, **self.tell(x)) for query in batch for x in [query.get("x", query.get("left.x"))]]


TELLS = {
    "odd": lambda x: {"mine": ["odd", x]} if x % 2 else {},
    "sure": lambda _x: {"confidence": np.float32(0.5)},
    "variant": lambda x: {"variant": "small", "default": x == 2},
}


class Counts:
    """Its second answer would be another one."""

    deterministic = True

    def __init__(self, away=0):
        self.ran = away

    def predict(self, batch):
        assert not any(query.request_id or query.key for query in batch)
        self.ran += len(batch)
        return [{"label": f"{query['x']}-{self.ran}"} for query in batch]


def by_sign(outputs):
    return ["left"] if outputs["y"] % 2 else ["right"]


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


class CancelsItself:
    def __init__(self):
        raise asyncio.CancelledError
