import inspect

import pytest

from .worlds import KafkaWorld, MemoryWorld


@pytest.fixture(params=["memory", "kafka"])
def world(request):
    """Each of the worlds, the one in memory with several seeds; a broker is started for the other one alone."""
    return Seeds() if request.param == "memory" else KafkaWorld(request.getfixturevalue("broker"))


class Seeds:
    """A test in memory, once for each of some seeds."""

    def run(self, main):
        for seed in range(10):
            MemoryWorld(seed).run(main)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run a test that is a coroutine in its world."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}
    given["world"].run(lambda world: test(**given | {"world": world}))
    return True
