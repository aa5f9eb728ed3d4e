"""A pipeline with a learner, served by one command: what clients feed back is what their queries are answered with."""

import functools
import json
import os
import signal
import subprocess
import threading
import time

import pytest

from agents.supervise.registry import entries
from lineage.errors import UsageError
from lineage.limits import DEFAULT_LIMITS
from lineage.message import PREDICTION
from lineage.tokens import Token
from producers.client import Client
from producers.connection import ClientSettings
from producers.published import Published
from tests.acceptance.learned_models import Taste, learned
from tests.acceptance.serving import ROOT, SPILLWAY, serving
from tests.waiting import PATIENT_SECONDS, until
from topology.load import load
from topology.topics import table_of

MODELS = "tests.acceptance.learned_models"


@pytest.fixture
def pipeline(unique_name, tmp_path):
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        f"name: {unique_name}\nslo: {PATIENT_SECONDS}s\npartitions: 2\n"
        f'stages:\n  - {{name: rank, model: "{MODELS}:Rank", tables: {{user: {{of: taste}}}}}}\n'
        f'learners:\n  - {{name: taste, model: "{MODELS}:Taste", state: {{kind: keyed, shards: 2}}, publish: true}}\n'
    )
    return file


def test_feedback_changes_what_the_next_query_sees(pipeline, broker, tmp_path):
    spec = load(pipeline).spec
    with serving(pipeline, spec.name, broker, tmp_path, cwd=ROOT) as served:
        with Client(spec, ClientSettings(bootstrap=broker)) as client:

            def ask(key):
                return client.predict({}, key=key)

            first = ask("ada")
            assert first.outputs == {"user": None, "version": None}
            with pytest.raises(UsageError, match="no learner 'tast'; did you mean 'taste'"):
                client.feedback("tast", "ada", 1)
            once = client.feedback("taste", first, 2)
            assert once.id == f"{first.flags['rank']['request']}/taste"
            assert once.token(PATIENT_SECONDS).learner == "taste"
            client.feedback("taste", first, 2)  # the same again: nobody waits for its acknowledgement
            options = ("--key", "ada", "--id", "mine", "--wait", "--bootstrap", broker)
            command = [SPILLWAY, "feedback", pipeline, "taste", "3", *options]
            told = json.loads(subprocess.run(command, capture_output=True, check=True, cwd=ROOT, timeout=600).stdout)
            assert told["id"] == "mine"
            token = Token.parse(told["token"])
            seen = until(lambda: (out := ask("ada")).outputs["user"]["sum"] == 5 and out, 30.0, "the table followed")
            assert seen.outputs["user"] == replayed([(once.id, 2), ("mine", 3)])
            assert (
                seen.flags["rank"]["versions"] == {"user": seen.outputs["version"]} == {"user": [token.epoch, token.n]}
            )
            assert "stale" not in seen.flags["rank"]
            assert ask("bob").outputs["user"] is None
            for count in range(1, 6):  # whoever waits for the acknowledgement reads what was written
                token = client.feedback("taste", "eve", 1).token(PATIENT_SECONDS)
                answer = client.predict({}, key="eve", after=token)
                assert answer.outputs["user"]["n"] == count
                assert "stale" not in answer.flags["rank"]
            never = client.predict({}, key="eve", after=token._replace(n=token.n + 1_000))
            assert never.outputs["user"]["n"] == count
            assert never.flags["rank"]["stale"] is True
        assert served.stop() == 0, served.logs()


def replayed(observations):
    return functools.reduce(lambda state, each: learned(state, *each), observations, Taste().initialize())


KEYS = [f"user-{number}" for number in range(8)]
EVERY = 0.02  # seconds between two queries, and between two observations
AGAIN = 7  # every so many observations are sent twice
STRIKES = ("primary", "rank", "gate", "backup")


class Load:
    """Observations and queries at a steady rate, until told to stop; each in a thread of its own."""

    def __init__(self, spec, settings):
        self.given, self.asked, self.errors = [], [], []  # (key, feedback); futures of outcomes
        self._stop = threading.Event()
        self._client, self._other = (Client(spec, settings, grace=PATIENT_SECONDS) for _ in range(2))
        self._threads = [threading.Thread(target=self._run, args=[each]) for each in (self._observe, self._ask)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exception):
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._client.close()
        self._other.close()

    def end(self):
        """Stop sending; gives the outcomes of all queries, and of all observations their keys, ids and tokens."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        answers = [future.result(PATIENT_SECONDS) for future in self.asked]
        return answers, [(key, each.id, each.token(PATIENT_SECONDS)) for key, each in self.given]

    def _run(self, act):
        number, began = 0, time.monotonic()
        try:
            while not self._stop.wait(max(0.0, began + number * EVERY - time.monotonic())):
                act(number, KEYS[number % len(KEYS)])
                number += 1
        except Exception as error:
            self.errors.append(error)
            raise

    def _observe(self, number, key):
        self.given.append((key, self._client.feedback("taste", key, 1, feedback_id=f"seen-{number}")))
        if number % AGAIN == 0:
            self._other.feedback("taste", key, 1, feedback_id=f"seen-{number}")

    def _ask(self, number, key):
        self.asked.append(self._client.submit({}, key=key))


def strike(run_dir, name, what):
    """Kill one process, and wait until another one serves in its place."""
    learner = f"{name}-taste"
    pipeline = name if what == "rank" else learner
    if what in {"primary", "backup"}:
        told = subprocess.run(
            [SPILLWAY, "status", learner, "--run-dir", run_dir, "--json"], capture_output=True, check=False
        )
        states = json.loads(told.stdout)["pipelines"][learner]["states"]
        place = next(place for place, state in states.items() if state["role"] == what)
    else:
        place = f"{what}.0"

    def there():
        return next(
            (one for one in entries(run_dir, pipeline) if one.name == place and one.ready and one.alive()), None
        )

    victim = until(there, 60.0, f"{what} is there")
    os.kill(victim.pid, signal.SIGKILL)
    until(lambda: (now := there()) is not None and now.pid != victim.pid, 60.0, f"a process in place of {place}")


@pytest.mark.parametrize("strikes", [STRIKES[::2], pytest.param(5 * STRIKES, marks=pytest.mark.nightly)])
def test_every_observation_counts_once_and_queries_are_answered_whoever_dies(pipeline, broker, tmp_path, strikes):
    spec, settings = load(pipeline).spec, ClientSettings(bootstrap=broker)
    with serving(pipeline, spec.name, broker, tmp_path, cwd=ROOT) as served:
        with Load(spec, settings) as load_of_both:
            until(lambda: len(load_of_both.given) > 50 or load_of_both.errors, 60.0, "observations are taken")
            for what in strikes:
                strike(served.run_dir, spec.name, what)
            answers, taken = load_of_both.end()
        assert not load_of_both.errors
        assert {answer.kind for answer in answers} == {PREDICTION}
        wanted = {key: [one for of, one, _ in taken if of == key] for key in KEYS}
        topic = table_of(spec, "taste")
        with Published(settings, topic, partitions=spec.partitions, shards=2, limits=DEFAULT_LIMITS) as table:
            table.read(PATIENT_SECONDS)
            until(
                lambda: all(table.find(key).value["n"] >= len(wanted[key]) for key in KEYS),
                30.0,
                "what was acknowledged is published",
            )
            for key in KEYS:
                row = table.find(key)
                assert row.value == replayed([(one, 1) for one in wanted[key]])  # the first copies, in their order
                assert row.version >= max((token.epoch, token.n) for of, _, token in taken if of == key)
        assert served.stop() == 0, served.logs()
