"""Models that are not what a stage needs, each in another way."""

from __future__ import annotations

import os

from tests.unit.models.stateful_models import Total


class Plain:
    def __init__(self, says=""):
        print(says)

    def predict(self, batch):
        return [{} for _ in batch]


class Half:
    def initialize(self):
        return {}

    def compute(self, state, batch):
        return [{} for _ in batch]


class Opaque(Total):
    def initialize(self):
        return {"fit": object()}


class Raises(Total):
    def initialize(self):
        return {"x": 1 / 0}


class Dies(Total):
    def initialize(self):
        os._exit(3)
