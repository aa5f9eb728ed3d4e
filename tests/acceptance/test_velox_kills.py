"""A Velox model is retrained while processes of its learner and stage, and trainers, are killed; nothing is lost."""

import copy
import os
import random
from collections import Counter

import numpy as np
import pytest

from spillway.agents.learning.velox.served import Served
from spillway.agents.learning.velox.thetas import Thetas
from spillway.agents.models.inputs import Inputs
from spillway.agents.models.stateful import SHARED, Machine
from spillway.agents.supervise.retraining import read_users
from spillway.lineage.message import PREDICTION
from spillway.producers.connection import ClientSettings
from spillway.producers.generations import Followed
from spillway.topology import topics
from spillway.topology.load import load
from tests.acceptance.serving import ROOT, serving
from tests.acceptance.velox_kills import FILE, KINDS, RATED, USERS, Kept, Killer, Rater, problems
from tests.waiting import PATIENT_SECONDS, until


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
        until(lambda: len(rater.told) > USERS * RATED or rater.error, PATIENT_SECONDS, "first ratings")
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
