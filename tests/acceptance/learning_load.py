"""Observations and queries at a steady rate, for served pipelines with learners of which processes are killed."""

import json
import os
import signal
import subprocess
import threading
import time
from contextlib import suppress

from spillway.agents.supervise.registry import entries
from spillway.lineage.errors import BrokerError
from spillway.lineage.limits import DEFAULT_LIMITS
from spillway.lineage.message import PREDICTION
from spillway.producers.client import Client
from spillway.producers.published import Published
from spillway.topology import names
from spillway.topology.topics import egress, table_of
from tests.acceptance.serving import SPILLWAY, read_egress
from tests.oracle import outcome_problems
from tests.waiting import PATIENT_SECONDS, until

KEYS = [f"user-{number}" for number in range(8)]
EVERY = 0.01  # seconds between two queries, and between two observations
SENDERS = 8  # threads that observe, as each waits until the broker has it; a key's observations are one thread's
AGAIN = 7  # every so many observations are sent twice
STRUCK_SECONDS = 60.0


def published(settings, spec, learner, shards=1):
    """The table that a learner publishes."""
    topic = table_of(spec, learner)
    return Published(settings, topic, partitions=spec.partitions, shards=shards, limits=DEFAULT_LIMITS)


class Load:
    """Sends until told to stop. How a query is asked, and what is observed, a test's own kind of load says."""

    learner = ""

    def __init__(self, spec, settings):
        self.pipeline = spec.name
        self.given, self.asked, self.errors = [], [], []  # (number, key, feedback); futures of outcomes
        self.sent = []  # ids of queries
        self.client, self.other = (Client(spec, settings, grace=PATIENT_SECONDS) for _ in range(2))
        self._stop = threading.Event()
        observers = [(self._observe, range(sender, len(KEYS), SENDERS)) for sender in range(SENDERS)]
        everyone = [(self._ask, range(len(KEYS))), *observers]
        self._threads = [threading.Thread(target=self._run, args=each) for each in everyone]

    def inputs(self, _number):
        """Of a query."""
        return {}

    def observe(self, client, number, key):
        """The feedback on an observation; the same for the same number."""
        raise NotImplementedError

    def __enter__(self):
        self._began = time.monotonic()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exception):
        self._join()
        self.client.close()
        self.other.close()

    def go_on(self, count=100):
        """Wait until so many observations more were taken by the broker, and queries sent."""
        wanted = len(self.given) + count, len(self.asked) + count
        until(
            lambda: (len(self.given) >= wanted[0] and len(self.asked) >= wanted[1]) or self.errors,
            60.0,
            f"{count} observations and queries more",
        )
        assert not self.errors

    def predict(self, key):
        """Ask one query more, and wait for its outcome."""
        return self._submit(f"more-{len(self.sent)}", self.inputs(0), key).result(PATIENT_SECONDS)

    def end(self):
        """Stop sending; gives the outcomes of all queries, and of all observations their keys, ids and tokens."""
        seconds = time.monotonic() - self._began
        self._join()
        assert not self.errors
        print(f"{len(self.given)} observations and {len(self.asked)} queries in {seconds:.0f} s")
        answers = [future.result(PATIENT_SECONDS) for future in self.asked]
        return answers, [(number, key, each.id, each.token(PATIENT_SECONDS)) for number, key, each in self.given]

    def problems(self, bootstrap, taken):
        """What is wrong with the topics of answers: each query, and each observation, has one."""

        def right(_request_id, kind, _told):
            return kind == PREDICTION

        found = outcome_problems(self.sent, read_egress(bootstrap, egress(self.pipeline), "any"), right)
        acknowledged = read_egress(bootstrap, egress(names.learner(self.pipeline, self.learner)), "any")
        return found + outcome_problems([one for _, _, one, _ in taken], acknowledged, right)

    def _join(self):
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, act, places):
        """Act at the rate of all keys for those at `places`, in the order of the numbers."""
        turn = 0
        try:
            while not self._stop.is_set():
                for place in places:
                    number = turn * len(KEYS) + place
                    if self._stop.wait(max(0.0, self._began + number * EVERY - time.monotonic())):
                        return
                    act(number, KEYS[place])
                turn += 1
        except Exception as error:
            self.errors.append(error)
            raise

    def _ask(self, number, key):
        self.asked.append(self._submit(f"q{number}", self.inputs(number), key))

    def _submit(self, request_id, inputs, key):
        self.sent.append(request_id)
        return self.client.submit(inputs, key=key, request_id=request_id)

    def _observe(self, number, key):
        given = self._stored(self.client, number, key)
        self.given.append((number, key, given))
        if number % AGAIN == 0:
            self._stored(self.other, number, key)

    def _stored(self, client, number, key):
        """The feedback, once the broker has it: a busy one may take longer than the client waits, and an id is safe."""

        def sent():
            with suppress(BrokerError):
                return self.observe(client, number, key)

        return until(sent, PATIENT_SECONDS, f"observation {number} is taken")


class Killer:
    """Kills processes of a served pipeline, `PIPELINE/PLACE`, and waits until others serve in their place."""

    def __init__(self, served, pipeline, learner):
        self._served = served
        self._pipeline, self._learner = pipeline, learner

    def strike(self, what, meanwhile=lambda: None):
        """Kill the learner's `primary`, `backup`, `both` or `gate`, else the front of the stage that is called `what`.

        `meanwhile` is called while both members of a shard are away: nobody starts them again before it has returned.
        """
        learner = names.learner(self._pipeline, self._learner)
        if what in {"primary", "backup"}:
            self._kill(learner, [self._roles(learner)[what]])
        elif what == "both":
            self._kill(learner, list(self._roles(learner).values()), meanwhile)
        else:
            self._kill(learner if what == "gate" else self._pipeline, [f"{what}.0"])

    def _kill(self, pipeline, places, meanwhile=None):
        victims = [until(lambda place=place: self._there(pipeline, place), STRUCK_SECONDS, place) for place in places]
        supervisor = self._served.process
        if meanwhile is not None:
            supervisor.send_signal(signal.SIGSTOP)
        try:
            for victim in victims:
                os.kill(victim.pid, signal.SIGKILL)
            if meanwhile is not None:
                until(lambda: not any(victim.alive() for victim in victims), STRUCK_SECONDS, f"{places} have ended")
                meanwhile()
                assert not any(self._there(pipeline, place) for place in places)
        finally:
            if meanwhile is not None:
                supervisor.send_signal(signal.SIGCONT)
        for victim in victims:
            until(
                lambda of=victim: (now := self._there(pipeline, of.name)) is not None and now.pid != of.pid,
                STRUCK_SECONDS,
                f"a process in place of {victim.name}",
            )

    def _there(self, pipeline, place):
        found = entries(self._served.run_dir, pipeline)
        return next((one for one in found if one.name == place and one.ready and one.alive()), None)

    def _roles(self, learner):
        """The primary and the backup of the learner's first shard, once it has both."""

        def roles():
            options = ["--run-dir", self._served.run_dir, "--json"]
            told = subprocess.run([SPILLWAY, "status", learner, *options], capture_output=True, check=False)
            with suppress(ValueError, KeyError):  # nobody of it answers, for the moment
                states = json.loads(told.stdout)["pipelines"][learner]["states"]
                found = {state["role"]: place for place, state in states.items() if place.split(".")[1] == "0"}
                return found if {"primary", "backup"} <= found.keys() else None
            return None

        return until(roles, STRUCK_SECONDS, "a primary and a backup")
