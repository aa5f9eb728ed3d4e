"""A Velox model is retrained while its trainer, its learner's primaries and its server are killed: nothing is lost."""

import copy
import itertools
import json
import os
import random
import signal
import subprocess
import threading
from collections import Counter

import numpy as np
import psutil
import pytest

from spillway.agents.learning.velox.served import Served
from spillway.agents.learning.velox.thetas import Thetas
from spillway.agents.models.inputs import Inputs
from spillway.agents.models.stateful import SHARED, Machine
from spillway.agents.supervise.registry import entries
from spillway.agents.supervise.retraining import read_users
from spillway.lineage.errors import SpillwayError
from spillway.lineage.message import PREDICTION
from spillway.producers.client import Client
from spillway.producers.connection import ClientSettings
from spillway.producers.generations import Followed
from spillway.topology import topics
from spillway.topology.load import load
from tests.acceptance.serving import ROOT, SPILLWAY, serving
from tests.acceptance.test_velox import EXAMPLE, command
from tests.acceptance.velox_kills import FILE, KINDS, RATED, Kept, Killer, Rater, problems
from tests.acceptance.velox_kills import USERS as RATERS
from tests.waiting import PATIENT_SECONDS, until

USERS, SONGS = 6, 12


class Listeners(threading.Thread):
    """Rates songs without end, one after the other, each under an id; `heard` counts what was acknowledged."""

    def __init__(self, client, name):
        super().__init__(daemon=True)
        self.client, self.label = client, name
        self.heard, self.errors = 0, []
        self.over = threading.Event()

    def run(self):
        for number in itertools.count():
            user, turn = number % USERS, number // USERS
            song = (turn + 2 * user) % SONGS
            value = 3.0 + (1 if song % 3 else -1) * (2 if user % 2 else -2)
            try:
                told = self.client.feedback(
                    "taste", f"u{user}", {"item": f"song-{song}", "value": value}, feedback_id=f"{self.label}-{number}"
                )
                told.token(PATIENT_SECONDS)
            except (SpillwayError, TimeoutError) as error:
                self.errors.append(error)
                return
            self.heard += 1
            if self.over.is_set():
                return


def retrain(file, broker):
    words = [SPILLWAY, "train", "features", file, "taste", "--bootstrap", broker]
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def trainers(served):
    try:
        return [child for child in psutil.Process(served.process.pid).children() if "train" in child.cmdline()]
    except psutil.NoSuchProcess:
        return []


def kill_members(served, number):
    for entry in entries(served.run_dir, f"{served.pipeline}-taste"):
        if entry.role == "member" and entry.alive() and entry.name.endswith(f".{number}"):
            os.kill(entry.pid, signal.SIGKILL)


@pytest.mark.nightly
def test_no_kill_loses_an_observation_or_a_switch(unique_name, broker, tmp_path):
    file = tmp_path / "songs.yaml"
    text = EXAMPLE.read_text().replace("name: songs", f"name: {unique_name}")
    text = text.replace(".spillway/songs", str(tmp_path / "thetas")).replace("window: 200", "window: 100000")
    file.write_text(text.replace("slo: 500ms", f"slo: {PATIENT_SECONDS}s"))
    spec = load(file).spec
    settings = ClientSettings(bootstrap=broker)
    log = Followed(settings, topics.generations(f"{spec.name}-taste"))
    with serving(file, spec.name, broker, tmp_path, cwd=ROOT) as served:
        client = Client(spec, settings, grace=PATIENT_SECONDS)
        listeners = Listeners(client, unique_name)
        listeners.start()
        with client, log:
            until(lambda: listeners.heard >= USERS * SONGS or listeners.errors, PATIENT_SECONDS, "observations")
            # Two triggers at once; the first trainer is killed; primaries are killed as the learner is told to hold.
            both = [retrain(file, broker) for _ in range(2)]
            until(lambda: trainers(served), PATIENT_SECONDS, "a trainer")
            trainers(served)[0].kill()
            until(lambda: log.now.known.get(1) and log.now.known[1].theta, 3 * PATIENT_SECONDS, "generation 1 trained")
            kill_members(served, 0)
            for each in both:
                out, error = each.communicate(timeout=5 * PATIENT_SECONDS)
                assert each.returncode == 0, error
                assert "generation 1: switched" in out
            more = listeners.heard + USERS
            until(lambda: listeners.heard >= more or listeners.errors, PATIENT_SECONDS, "more observations")
            # The server is killed once the next generation is asked for: the next server goes on with it.
            assert "generation 0 is current" in command("rollback", file, "taste", broker=broker)
            asking = retrain(file, broker)
            until(lambda: log.now.open is not None, PATIENT_SECONDS, "generation 2 asked for")
            os.kill(served.process.pid, signal.SIGKILL)
            served.process.wait()
            (tmp_path / "ready").unlink()
            with serving(file, spec.name, broker, tmp_path, cwd=ROOT) as again:
                out, error = asking.communicate(timeout=5 * PATIENT_SECONDS)
                assert asking.returncode == 0, error
                assert "generation 2: switched" in out
                listeners.over.set()
                listeners.join(PATIENT_SECONDS)
                assert not listeners.errors, listeners.errors
                listed = json.loads(command("list", file, "taste", "--json", broker=broker))
                assert [row["generation"] for row in listed["generations"]] == [0, 2]
                assert listed["generations"][0]["observations"] == listeners.heard  # each exactly once
                assert [row["users"] for row in listed["generations"]] == [USERS, USERS]
                events = [[event["event"] for event in each.events] for each in log.now.known.values()]
                assert events == [["current"], ["asked", "trained", "switched"], ["asked", "trained", "switched"]]
                assert again.stop() == 0, again.logs()


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_each_rating_is_learned_once_whoever_is_killed(unique_name, broker, tmp_path):
    """SPILLWAY_KILLS processes are killed, and SPILLWAY_SEED says whom and when; `-s` shows what came of it."""
    count, seed = int(os.environ.get("SPILLWAY_KILLS", "14")), int(os.environ.get("SPILLWAY_SEED", "1"))
    file = tmp_path / "kills.yaml"
    file.write_text(FILE.format(tmp_path / "thetas", unique_name, PATIENT_SECONDS))
    pipeline, settings = load(file), ClientSettings(bootstrap=broker)
    learner = pipeline.learner("taste")
    order = [kind for turn in range(count) for kind in random.Random(seed + turn).sample(KINDS, len(KINDS))][:count]
    log = Followed(settings, topics.generations(learner.spec.name))
    with serving(file, unique_name, broker, tmp_path, cwd=ROOT) as served, log:
        rater = Rater(pipeline, settings)
        rater.start()
        until(lambda: len(rater.told) > RATERS * RATED or rater.error, PATIENT_SECONDS, "first ratings")
        killer = Killer(served, log, seed)
        killer.retrain()
        for number, kind in enumerate(order, 1):
            who = killer.strike(kind)
            print(f"{number} of {count}: {kind}, the {who}; {len(rater.told)} ratings so far", flush=True)
            killer.pause()
        queries = rater.end()
        events = Counter(event["event"] for each in log.now.known.values() for event in each.events)
        states, _ = read_users(learner, settings, str(log.now.current))
        assert served.stop() == 0, served.logs()
    print(dict(Counter(order)), dict(queries), dict(events), f"{len(rater.told)} ratings acknowledged")
    print("seconds until a victim's place is taken:", np.percentile(killer.seconds, (0, 50, 100)).round(1).tolist())
    assert problems(rater.sent, states, Thetas(Kept(), folder=str(tmp_path / "thetas"))) == []
    assert queries.keys() == {PREDICTION}


@pytest.fixture(scope="module")
def listeners():
    """The states of two, and what each has rated."""
    machine = Machine("here", Served(Kept, {}))
    rng, sent = np.random.default_rng(1), {"ada": [], "eve": []}
    for turn in range(40):
        user, song, value = ("ada", "eve")[turn % 2], f"song-{rng.integers(12)}", float(rng.normal())
        machine.compute([Inputs({"truth": {"item": song, "value": value}}, {}, "id", user)])
        machine.update()
        sent[user].append((song, value))
    return {key: state for key, state in machine.state.items() if key != SHARED}, sent


def moved(states, _sent):
    states["ada"]["generations"]["0"]["w"][0] += 1e-6


def counted_twice(states, _sent):
    states["eve"]["n"] += 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda _states, _sent: None, None),
        (lambda _states, sent: sent["ada"].append(("song-1", 0.5)), "ada: 1 of 21 are missing, 0 are there too often"),
        (lambda _states, sent: sent["ada"].pop(3), "ada: 0 of 19 are missing, 1 are there too often"),
        (lambda _states, sent: sent["ada"].insert(0, sent["ada"].pop()), "ada: 0 of 20 are missing, 0 are there"),
        (counted_twice, "eve: 0 of 20 are missing, 0 are there"),
        (moved, "ada: weights of generation 0 are off by 1e-06"),
        (lambda states, _sent: states.pop("eve"), "eve: 20 of 20 are missing"),
        (lambda states, _sent: states.update(bob=states["eve"]), "bob: nobody has sent anything of it"),
    ],
)
def test_what_kills_may_do_to_a_state_is_found(listeners, change, words):
    states, sent = copy.deepcopy(listeners)
    change(states, sent)
    told = problems(sent, states, Thetas(Kept()))
    assert told == [] if words is None else len(told) == 1 and words in told[0]
