"""The loop of a stage's process does what asyncio's own does, but for files."""

import asyncio
import os
import signal
import socket
import threading
import time

import pytest

from spillway.agents.live.loop import run_loop


def test_a_thread_wakes_it_each_time():
    async def main():
        loop = asyncio.get_running_loop()
        waiting = [loop.create_future() for _ in range(1000)]

        def wake():
            for number, each in enumerate(waiting):
                if number % 100 == 0:
                    time.sleep(0.001)  # the loop is at rest meanwhile
                loop.call_soon_threadsafe(each.set_result, number)

        threading.Thread(target=wake).start()
        return [await each for each in waiting]

    assert run_loop(asyncio.wait_for(main(), 60)) == list(range(1000))


def test_it_rests_until_a_timer_is_due_and_no_longer():
    turns = []

    async def main():
        loop = asyncio.get_running_loop()
        rung = asyncio.Event()
        loop.call_later(0.05, rung.set)
        loop.call_soon(turns.append, 0)
        select = loop._selector.select
        loop._selector.select = lambda timeout: turns.append(timeout) or select(timeout)
        began = loop.time()
        await rung.wait()
        assert loop.time() >= began + 0.05 - loop._clock_resolution

    run_loop(asyncio.wait_for(main(), 60))
    assert len(turns) < 20


def test_work_in_other_threads_comes_back():
    async def main():
        return await asyncio.gather(*(asyncio.to_thread(pow, 2, number) for number in range(20)))

    assert run_loop(asyncio.wait_for(main(), 60)) == [2**number for number in range(20)]


def test_a_signal_reaches_a_loop_that_has_nothing_else_to_do():
    async def main():
        loop = asyncio.get_running_loop()
        told = asyncio.Event()
        loop.add_signal_handler(signal.SIGUSR1, told.set)
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        await told.wait()

    before = signal.getsignal(signal.SIGUSR1)
    run_loop(asyncio.wait_for(main(), 60))
    assert signal.getsignal(signal.SIGUSR1) == before == signal.SIG_DFL, "as asyncio leaves it"


def test_files_are_refused_with_the_way_out():
    async def main():
        ours, theirs = socket.socketpair()
        with ours, theirs, pytest.raises(NotImplementedError, match="read them in a thread"):
            asyncio.get_running_loop().add_reader(ours.fileno(), print)

    run_loop(main())
