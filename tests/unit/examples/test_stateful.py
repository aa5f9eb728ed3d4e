"""The stateful examples: that they keep the contract, learn, and are what their page says."""

import re
from pathlib import Path

import numpy as np
import pytest

from examples.stateful import bandit, payload, recommend
from spillway.agents.cli.main import run as command
from spillway.agents.models.stateful import Machine
from spillway.agents.models.warm_up import rehearse
from spillway.topology.load import load
from tests.state_runs import run

FOLDER = Path(__file__).parents[3] / "examples" / "stateful"
FILES = sorted(FOLDER.glob("*.yaml"))
ROWS = re.findall(
    r"^\| `(.*?\.yaml)` \| (.*?) \| `(\w+)(?: --key (\w+))?` \|$", (FOLDER / "README.md").read_text(), re.MULTILINE
)
MODELS = {"recommend": (recommend.recommend, payload.visit), "bandit": (bandit.Bandit, payload.offer)}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_passes_check(file, capsys):
    assert command(["check", str(file), "--models", "--json"]) == 0, capsys.readouterr().out


def test_the_page_tells_the_stages_with_a_state_and_what_to_send():
    assert sorted(name for name, *_ in ROWS) == [file.name for file in FILES]
    for name, stages, query, key in ROWS:
        stateful = [stage for stage in load(FOLDER / name).spec.stages if stage.stateful]
        assert all(stage.name in stages for stage in stateful)
        assert {stage.required_state.kind for stage in stateful} == {"keyed" if key else "shared"}
        assert not key or isinstance(getattr(payload, query)(3, np.random.default_rng(0))[key], str)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_keeps_the_contract_and_goes_on_from_any_state(name):
    model, query = MODELS[name]
    found = rehearse(name, model, payload.batches(query, 4, 10))
    assert found.versions == 4
    assert found.repeats


def test_the_recommender_learns_each_user():
    liked = recommend.tastes(3, 9)
    visits = recommend.visits(liked, 240, 1)
    state = run(recommend.recommend(), [visits[at : at + 8] for at in range(0, 240, 8)]).state
    assert set(state) == {"u0", "u1", "u2"}
    items = recommend.catalogue()
    (answers,) = run(recommend.recommend(), [[{"user": user} for user in sorted(state)]], state=state).outputs
    for number, answer in enumerate(answers):
        worth = items @ liked[number]
        assert np.mean(worth[answer["items"]]) > np.quantile(worth, 0.9)
        assert not state[f"u{number}"]["rated"][answer["items"]].any()


def test_the_bandit_finds_the_arms_that_are_worth_most():
    rng, worth, machine = np.random.default_rng(4), bandit.offers(), Machine("bandit", bandit.Bandit())
    lost = []
    for _ in range(60):
        comers = [bandit.visitor(rng) for _ in range(8)]
        arms = [answer["arm"] for answer in machine.compute([{"context": comer} for comer in comers])]
        machine.update()
        rewards = [float(worth[arm] @ comer) for arm, comer in zip(arms, comers, strict=True)]
        lost.append(np.mean([max(worth @ comer) - reward for comer, reward in zip(comers, rewards, strict=True)]))
        machine.compute(
            [
                {"context": comer, "arm": arm, "reward": reward + rng.normal(0, 0.1)}
                for comer, arm, reward in zip(comers, arms, rewards, strict=True)
            ]
        )
        machine.update()
    assert np.mean(lost[-10:]) < 0.3 * np.mean(lost[:5])
    assert machine.version == 60  # asking made no versions
