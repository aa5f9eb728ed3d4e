"""Models that are not what a stage needs, each in another way."""

import multiprocessing
import os
import pathlib
import threading
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


class Threads(Plain):
    """Leaves a thread that never ends."""

    def __init__(self):
        threading.Thread(target=time.sleep, args=(600,)).start()


class Leaves(Plain):
    """Leaves a child that has all that this process has."""

    def __init__(self, file):
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
        child.start()
        pathlib.Path(file).write_text(str(child.pid))


class DiesBesideIt(Leaves):
    def __init__(self, file):
        super().__init__(file)
        os._exit(3)
