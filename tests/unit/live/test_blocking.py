"""Coroutines over ports that block are run without an event loop."""

import asyncio

import pytest

from spillway.agents.live.gate.blocking import block, complete, in_thread


async def outer(seconds):
    await block(seconds)
    return complete(inner(1))  # as a callback of librdkafka's does, in the midst of a call


async def inner(number):
    return number + 1


def test_a_coroutine_runs_to_its_end_and_others_within_it():
    assert complete(outer(0.0)) == 2


def test_one_that_suspends_is_a_fault_of_a_port():
    with pytest.raises(RuntimeError, match=r"sleep.* waits for an event loop"):
        complete(asyncio.sleep(0))


def test_what_a_thread_raises_is_raised_where_it_is_taken():
    def fail():
        raise ValueError("odd")

    with pytest.raises(ValueError, match="odd"):
        in_thread("t", fail).result(60)
