"""A Velox model is retrained while its trainer, its learner's primaries and its server are killed: nothing is lost."""

import itertools
import json
import os
import signal
import subprocess
import threading

import psutil
import pytest

from agents.supervise.registry import entries
from lineage.errors import SpillwayError
from producers.client import Client
from producers.connection import ClientSettings
from producers.generations import Followed
from tests.acceptance.serving import ROOT, SPILLWAY, serving
from tests.acceptance.test_velox import EXAMPLE, command
from tests.waiting import PATIENT_SECONDS, until
from topology import topics
from topology.load import load

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
    words = [SPILLWAY, "model", "retrain", file, "taste", "--bootstrap", broker]
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
