"""Kills, drawn from a seed, while a Velox model learns; and what must be in the state of its learner in the end.

Real processes on a real Kafka and SIGKILL: the learner's primaries and backups, its gate, the stage's front, the
trainer while it trains, and any of the first while features are switched or rolled back. In the end each user's durable
state must hold the ratings that were sent, in their order, each once, and its weights in each generation must be those
that eq. 2.2 makes of them. Who rates what is generated.
"""

import os
import random
import signal
import threading
import time
from collections import Counter

import numpy as np
import psutil

from examples.velox.songs import Rotation
from spillway.agents.learning.velox import observed
from spillway.agents.learning.velox.learning import HELD, rows_of
from spillway.agents.learning.velox.weights import naive
from spillway.agents.supervise.registry import entries
from spillway.agents.supervise.scrape import BACKUP, PRIMARY, members
from spillway.lineage.errors import SpillwayError
from spillway.producers.client import Client
from spillway.producers.generations import ASKED, CURRENT
from tests.waiting import PATIENT_SECONDS, until

PLAIN = ("primary", "backup", "gate", "front")
KINDS = (*PLAIN, "trainer", "switch", "rollback")
USERS, RATED, SHARDS = 6, 12, 2
RATE, ASKS = 25.0, 10.0  # observations and queries a second
_TWICE = 7  # every so many observations are sent twice
SECONDS = 60.0  # for each wait
FILE = """
name: {1}
slo: {2}s
partitions: 4
stages:
  - name: rank
    model: "velox:tests.acceptance.velox_kills:Kept"
    arguments: {{folder: {0}}}
    tables: {{user: {{of: taste}}}}
learners:
  - name: taste
    model: "velox:tests.acceptance.velox_kills:Kept"
    arguments: {{folder: {0}}}
    state: {{kind: keyed, shards: 2}}
    publish: true
"""


class Kept(Rotation):
    """Keeps all observations, so that each can be looked for."""

    observations = 1_000_000


def problems(sent, states, thetas):
    """What is wrong with the users' states, which are to have learned just what was `sent`, each once and in order."""
    found = [f"{user}: nobody has sent anything of it" for user in states.keys() - sent.keys()]
    for user, ratings in sent.items():
        state = states.get(user)
        kept = [] if state is None else list(zip(observed.items_of(state), state["values"].tolist(), strict=True))
        if state is None or kept != list(ratings) or state["n"] != len(ratings):
            more, less = Counter(kept) - Counter(ratings), Counter(ratings) - Counter(kept)
            found.append(f"{user}: {less.total()} of {len(ratings)} are missing, {more.total()} are there too often")
            continue
        for number, each in state[HELD].items():
            rows, values = rows_of(thetas.get(each["theta"]), state)
            precision = thetas.prior(each["theta"]).precision
            off = float(np.abs(each["w"] - naive(rows, values, precision, each["prior"])).max())
            if off > 1e-8:
                found.append(f"{user}: weights of generation {number} are off by {off:.1g}")
    return found


class Rater(threading.Thread):
    """Rates and asks at a steady rate until it is told to end."""

    def __init__(self, pipeline, settings):
        super().__init__(daemon=True)
        self.clients = [Client(pipeline, settings, grace=PATIENT_SECONDS) for _ in range(2)]
        self.over = threading.Event()
        self.sent = {f"u{user}": [] for user in range(USERS)}
        self.told = []
        self.asked = []
        self.error = None

    def run(self):
        rng, began, turn = np.random.default_rng(0), time.monotonic(), 0
        try:
            while not self.over.wait(max(0.0, began + turn / RATE - time.monotonic())):
                user, song = turn % USERS, int(rng.integers(RATED))
                value = 3.0 + (1 if song % 3 else -1) * (2 if user % 2 else -2) + float(rng.normal() / 8)
                self._rate(turn, f"u{user}", f"song-{song}", value)
                if turn * ASKS // RATE > len(self.asked):
                    self.asked.append(self.clients[0].submit({"k": 5}, key=f"u{user}"))
                turn += 1
        except SpillwayError as error:
            self.error = error

    def _rate(self, number, user, song, value):
        truth, name = {"item": song, "value": value}, f"rating-{number}"
        told = self.clients[0].feedback("taste", user, truth, feedback_id=name)
        if number < USERS:
            told.token(PATIENT_SECONDS)  # one after the other, so that all are known before anybody is killed
        elif number % _TWICE == 0:
            self.clients[1].feedback("taste", user, truth, feedback_id=name)
        self.sent[user].append((song, value))
        self.told.append(told)

    def end(self):
        """Wait for everything: how queries ended. Raises SpillwayError where something was not acknowledged."""
        self.over.set()
        self.join()
        if self.error is not None:
            raise self.error
        for told in self.told:
            told.token(PATIENT_SECONDS)
        kinds = Counter(way.result(PATIENT_SECONDS).kind for way in self.asked)
        for client in self.clients:
            client.close()
        return kinds


class Killer:
    def __init__(self, served, log, seed):
        self._served, self._log, self._draw = served, log, random.Random(seed)
        self._learner = f"{served.pipeline}-taste"
        self.training = 0.0  # seconds from a trainer's start until it has trained, at first
        self.seconds = []  # from a kill until its victim's place is taken

    def strike(self, kind):
        """Kill one process; who it was."""
        self._log.require()
        if kind in PLAIN:
            return self._kill(kind)
        if kind == "rollback":
            if self._log.now.current == 0:
                self.retrain()
            timer = threading.Timer(self._draw.uniform(0, 0.3), self._log.append, (CURRENT, 0))
            timer.start()
            time.sleep(self._draw.uniform(0, 0.4))
            return self._kill(self._draw.choice(PLAIN), timer.join)
        while True:
            self._go_back()
            self._log.append(ASKED, why="somebody is killed meanwhile")
            who = self._in_mid_switch() if kind == "switch" else self._in_training()
            if who:
                return who

    def _in_mid_switch(self):
        until(lambda: self._log.now.open is None or self._log.now.open.theta, SECONDS, "a generation is trained")
        time.sleep(self._draw.uniform(0, 0.5))
        return self._kill(self._draw.choice(PLAIN), self._closed)

    def _in_training(self):
        (trainer,) = until(self._trainers, SECONDS, "a trainer")
        time.sleep(self._draw.uniform(0, self.training))
        there = trainer.is_running() and self._log.now.open is not None and not self._log.now.open.theta
        if there:
            trainer.kill()
        self._closed()
        return "trainer" if there else ""  # it was faster this time

    def retrain(self):
        """Retrain and switch with nobody killed."""
        self._go_back()
        self._log.append(ASKED, why="to be rolled back")
        until(self._trainers, SECONDS, "a trainer")
        began = time.monotonic()
        until(lambda: self._log.now.open is None or self._log.now.open.theta, SECONDS, "a generation is trained")
        self.training = self.training or time.monotonic() - began
        self._closed()

    def pause(self):
        time.sleep(self._draw.uniform(0.5, 4.0))

    def _go_back(self):
        """To generation 0, than which what is trained of the ratings is always better."""
        if self._log.now.current:
            self._log.append(CURRENT, 0)

    def _closed(self):
        until(lambda: self._log.now.open is None, SECONDS, "a generation ends")
        if self._log.now.current == 0:
            raise AssertionError(f"the last generation was {self._log.now.known[max(self._log.now.known)].end}")

    def _trainers(self):
        return [each for each in psutil.Process(self._served.process.pid).children() if "train" in _words(each)]

    def _kill(self, what, then=lambda: None):
        shard = self._draw.randrange(SHARDS)
        victim = until(lambda: self._there(what, shard), SECONDS, f"a {what}")
        os.kill(victim.pid, signal.SIGKILL)
        began = time.monotonic()
        then()
        until(
            lambda: (now := self._there(what, shard)) and now.pid != victim.pid,
            SECONDS,
            f"a {what} in place of the dead",
        )
        self.seconds.append(time.monotonic() - began)
        return what

    def _there(self, what, shard):
        if what in {"primary", "backup"}:
            found = members(self._served.run_dir, self._learner, "taste", shard)
            return found[role][0] if (role := PRIMARY if what == "primary" else BACKUP) in found else None
        pipeline, role = (self._learner, "gate") if what == "gate" else (self._served.pipeline, "stage")
        there = entries(self._served.run_dir, pipeline)
        return next((one for one in there if one.role == role and one.ready and one.alive()), None)


def _words(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []
