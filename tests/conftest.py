"""What tests of several rooms share: one real broker per run, and names that no other test uses."""

import asyncio
import gc
import inspect
import itertools
import os
import re
import sys

import pytest
from hypothesis import settings

from tests.shared_broker import shared_broker

# A loaded machine is no failure: properties are judged by what they say, not by how long an example takes.
# `make nightly` asks for the long profile.
settings.register_profile("spillway", deadline=None, max_examples=25)
settings.register_profile("nightly", deadline=None, max_examples=200)
settings.load_profile(os.environ.get("SPILLWAY_HYPOTHESIS_PROFILE", "spillway"))

_COUNTER = itertools.count()
_LINES_OF_A_LOG = 60
_LOOP_SECONDS = 300.0  # a net: a test on an event loop takes milliseconds
_REPEATED = re.compile("Connect to .* failed|connection to .* closed")  # what a client says while a broker is away


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Keep the bytecode of the tests, where Python is told to write none: each worker imports all of them."""
    told, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    try:
        return (yield)
    finally:
        sys.dont_write_bytecode = told


def pytest_collection_finish():
    """Take what was imported, which stays, out of every look for garbage to come."""
    gc.collect()
    gc.freeze()


def pytest_pyfunc_call(pyfuncitem):
    """Run a test that is a coroutine on an event loop of its own; `tests/integration/contract` has other loops."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}

    async def bounded():
        async with asyncio.timeout(_LOOP_SECONDS):
            await test(**given)

    asyncio.run(bounded())
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Show the ends of the logs that a failed test's processes wrote below its `tmp_path`."""
    report = yield
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if report.failed and folder is not None:
        for log in sorted(folder.rglob("*.log")):
            if log.stem.isdigit():  # a broker's data
                continue
            lines = [line for line in log.read_text(errors="replace").splitlines() if not _REPEATED.search(line)]
            report.sections.append((str(log.relative_to(folder)), "\n".join(lines[-_LINES_OF_A_LOG:])))
    return report


@pytest.fixture(scope="session")
def broker(tmp_path_factory):
    """The address of the run's Kafka, one for all workers of pytest-xdist; it ends with the run."""
    folder, run = tmp_path_factory.getbasetemp(), os.getpid()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder, run = folder.parent, os.getppid()
    return shared_broker(folder / "broker", run)


@pytest.fixture
def unique_name(request):
    """A name for a pipeline, a topic or a group that no other test of this or another run uses."""
    readable = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:40].strip("-")
    return f"{readable}-{os.getpid()}-{next(_COUNTER)}"
