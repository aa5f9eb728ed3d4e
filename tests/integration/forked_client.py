"""Uses clients in forks of the process that made them. Usage: forked_client.py BOOTSTRAP PIPELINE SLO"""

import asyncio
import os
import sys
import threading

from spillway.lineage.errors import UsageError
from spillway.producers.client import AsyncClient, Client

BOOTSTRAP, NAME, SLO = sys.argv[1], sys.argv[2], float(sys.argv[3])
PATIENT = {"slo": SLO, "timeout": SLO}


def refused(ask):
    try:
        ask()
    except UsageError as error:
        return "was forked from it" in str(error)
    return False


async def gathered(client):
    return [outcome async for outcome in client.outcomes([{"n": 1}])]


def blocking(client):
    return {
        "predict": lambda: client.predict({"n": 1}),
        "submit": lambda: client.submit({"n": 1}, request_id="mine"),
        "online_query": lambda: client.online_query({"n": 1}),
        "offline_query": lambda: client.offline_query("none.jsonl", "out.jsonl"),
        "outcomes": lambda: list(client.outcomes([{"n": 1}])),
        "feedback": lambda: client.feedback("learner", "key", 1),
    }


def asynchronous(client):
    return {
        "predict": lambda: asyncio.run(client.predict({"n": 1})),
        "outcomes": lambda: asyncio.run(gathered(client)),
        "offline_query": lambda: asyncio.run(client.offline_query("none.jsonl", "out.jsonl")),
        "feedback": lambda: asyncio.run(client.feedback("learner", "key", 1)),
        "enter": lambda: asyncio.run(client.__aenter__()),
    }


def fork(run, end=os._exit):
    """Run something in a fork, which ends with the number that it returns; returns how it ended."""
    child = os.fork()
    if not child:
        end(run())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main():
    stop = threading.Event()
    unused = AsyncClient(NAME, BOOTSTRAP, **PATIENT)
    with Client(NAME, BOOTSTRAP, **PATIENT) as client:

        def hammer():
            while not stop.is_set():
                client.predict({"n": 0})

        def ask_blocking():
            wrong = [name for name, ask in blocking(client).items() if not refused(ask)]
            print("not refused:", wrong, flush=True)
            client.close()
            return len(wrong)

        thread = threading.Thread(target=hammer, daemon=True)
        thread.start()
        for _ in range(5):
            assert fork(ask_blocking, sys.exit) == 0  # by the interpreter's own end, which frees everything
        stop.set()
        thread.join()
        assert client.predict({"n": 5}).outputs["n"] == 5
    asyncio.run(use_async(unused))


async def use_async(unused):
    async with AsyncClient(NAME, BOOTSTRAP, **PATIENT) as client:

        def ask():
            wrong = [name for name, ask in asynchronous(client).items() if not refused(ask)]
            print("not refused:", wrong, flush=True)
            asyncio.run(client.close())
            return len(wrong)

        async def ask_unused():
            async with unused:  # it connects here, where it is used
                return (await unused.predict({"n": 4})).outputs["n"]

        assert await asyncio.to_thread(fork, ask) == 0
        assert await asyncio.to_thread(fork, lambda: asyncio.run(ask_unused())) == 4
        assert (await client.predict({"n": 6})).outputs["n"] == 6


main()
