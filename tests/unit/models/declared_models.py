"""Models that are not what a stage needs, each in another way."""

import os
import time

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


class Async(Plain):
    async def predict(self, batch):
        return [{} for _ in batch]


class AsyncStream(Plain):
    async def predict(self, batch):
        for _ in batch:
            yield {}


class Generates(Plain):
    def predict(self, batch):
        for _ in batch:
            yield {}


class OneByOne(Plain):
    def predict(self, query, batch):
        return {}


class AsyncUpdate(Total):
    async def update(self, state, batch, outputs):
        yield state


class Hangs(Plain):
    def __init__(self):
        time.sleep(86_400)


async def choose(_outputs):
    return ()
