"""Models and functions that the tests load by name."""

import os
import time


class Doubler:
    version = "7"

    def __init__(self, factor=2):
        self.factor = factor

    def predict(self, batch):
        return [{"y": query["x"] * self.factor} for query in batch]


class BadConstructor:
    def __init__(self):
        raise RuntimeError("no weights here")


class NoPredict:
    pass


class Fragile:
    """Does what its inputs say: raise, exit the process, return too few."""

    def predict(self, batch):
        results = []
        for query in batch:
            act = query.get("act")
            if act == "raise":
                raise ValueError("cannot stand this one")
            if act == "die":
                os._exit(9)
            if act == "exit":
                raise SystemExit(3)
            if act == "sleep":
                time.sleep(query["x"])
            if act == "short":
                continue
            if act == "text":
                results.append("no mapping")
            elif act == "object":
                results.append({"y": lambda: 0})
            else:
                results.append({"y": query["x"]})
        return results


def not_a_class():
    return None


CONSTANT = 3
