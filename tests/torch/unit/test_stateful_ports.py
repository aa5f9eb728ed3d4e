"""The ports of the stateful example: short, keeping the contract, and really learning."""

import re
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from agents.models.rehearsal import rehearse  # noqa: E402
from agents.models.state import fingerprint, size  # noqa: E402
from agents.models.stateful import Machine, run  # noqa: E402
from examples.stateful import bandit, labelling, payload, recommend, scenes, stocks, vision  # noqa: E402
from examples.stateful.ports import PORTS, lines  # noqa: E402

README = Path(__file__).parents[3] / "examples" / "stateful" / "README.md"
MOST = 10  # lines, as the paper says


@pytest.fixture(autouse=True)
def glyphs(monkeypatch):
    """Ten made-up signs instead of scikit-learn's digits, which take seconds to import."""
    rng = np.random.default_rng(1)
    signs, labels = (rng.random((10, 8, 8)) < 0.4) * 255.0, np.arange(200) % 10
    made = signs[labels] * rng.uniform(0.7, 1.0, (200, 1, 1)), labels
    for module in (scenes, labelling):
        monkeypatch.setattr(module, "digits", lambda: made)
    payload._drive.cache_clear()
    yield
    payload._drive.cache_clear()


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def seen(index):
    rng = np.random.default_rng(index)
    return {"camera": payload.place(index)[0], "seen": rng.random(vision.SEEN, np.float32)}


def centre(index):
    rng = np.random.default_rng(index)
    return {"camera": payload.place(index)[0], "label": 3, "centre": rng.random(2, np.float32)}


REQUESTS = {
    "SA transcribe": payload.talk,
    "SA sentiment": payload.heard,
    "SA topic": payload.heard,
    "SP lstm": payload.tick,
    "SP autoregression": payload.tick,
    "SP neighbours": payload.tick,
    "AP, FD track": seen,
    "AP foresee": centre,
    "OL(V) large": payload.picture,
    "OL(M) small": payload.picture,
    "recommend": payload.visit,
    "bandit": payload.offer,
}


def make(name):
    if name.startswith("OL"):
        return PORTS[name](width=0.05)
    recurrent = name.startswith(("SA", "AP")) or name == "SP lstm"
    return PORTS[name](untrained=True) if recurrent else PORTS[name]()


@pytest.mark.parametrize("name", PORTS)
def test_a_port_takes_at_most_ten_lines_and_the_readme_counts_them_right(name):
    count = lines(PORTS[name])
    assert 1 < count <= MOST
    assert re.search(rf"^\| {re.escape(name)} \|.*\| {count} \|$", README.read_text(), re.MULTILINE), (name, count)


def test_lines_are_counted_without_docstrings_comments_and_blanks():
    def port():
        """Text.

        More text.
        """
        # a comment

        return (
            1  # one
        )  # fmt: skip

    assert lines(port) == 4


@pytest.mark.parametrize("name", PORTS)
def test_a_port_keeps_the_contract_and_goes_on_from_any_state(name):
    batches = payload.batches(REQUESTS[name], 4, 10)  # of eight streams: two have a second query in each batch
    found = rehearse(name, lambda: make(name), batches)
    assert found.versions == 4
    assert found.repeats
    assert found.keys == (0 if found.kind == "shared" else len({make(name).key(q) for batch in batches for q in batch}))


@pytest.mark.parametrize("name", ["SA transcribe", "OL(M) small", "SP neighbours", "bandit"])
def test_inputs_that_lie_askew_in_memory_give_the_same_bits(name):
    """As a view into a message does; a replay must not depend on where its inputs happen to lie."""
    batches = payload.batches(REQUESTS[name], 3, 10)
    skewed = [[{key: askew(value) for key, value in query.items()} for query in batch] for batch in batches]
    straight, again = run(make(name), batches), run(make(name), skewed)
    assert fingerprint(straight.state) == fingerprint(again.state)


def askew(value):
    if not isinstance(value, np.ndarray):
        return value
    room = bytearray(b"\0" + np.ascontiguousarray(value).tobytes())
    return np.ndarray(value.shape, value.dtype, room, 1)


def share_right(answers, batches):
    told = [each for said, batch in zip(answers, batches, strict=True) for each in zip(said, batch, strict=True)]
    return sum(answer["label"] == query["label"] for answer, query in told) / len(told)


@pytest.mark.parametrize(("name", "width", "count"), [("OL(V) large", 0.05, 40), ("OL(M) small", 0.12, 60)])
def test_the_online_learners_learn(name, width, count):
    batches = [labelling.pictures(32, seed) for seed in range(count)]
    outputs = run(PORTS[name](width=width), batches).outputs
    assert share_right(outputs[:5], batches[:5]) < 0.25
    assert share_right(outputs[-10:], batches[-10:]) > 0.45


def test_the_sizes_are_the_paper_s_scale():
    with torch.device("meta"):
        large, small = labelling.Vgg(), labelling.MobileNet()
    assert sum(value.nbytes for value in large.state_dict().values()) > 100e6
    assert sum(value.nbytes for value in small.state_dict().values()) == pytest.approx(13e6, rel=0.05)
    assert size(make("OL(M) small").initialize()) < 1e6


@pytest.mark.parametrize("name", ["SP autoregression", "SP neighbours"])
def test_the_forecasters_learn_a_share(name):
    changes = stocks.returns(200, 77)
    outputs = run(PORTS[name](), [[{"share": "a", "change": float(change)}] for change in changes]).outputs
    off = np.abs([answer["next"] - after for (answer,), after in zip(outputs[:-1], changes[1:], strict=True)])
    assert off[100:].mean() < 0.6 * np.abs(changes[101:]).mean()  # than forecasting nothing
    assert off[100:].mean() < off[:10].mean()


def test_the_recommender_learns_each_user():
    liked = recommend.tastes(3, 9)
    visits = recommend.visits(liked, 240, 1)
    state = run(PORTS["recommend"](), [visits[at : at + 8] for at in range(0, 240, 8)]).state
    assert set(state) == {"u0", "u1", "u2"}
    items = recommend.catalogue()
    (answers,) = run(PORTS["recommend"](), [[{"user": user} for user in sorted(state)]], state=state).outputs
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


def test_a_chain_of_the_auto_pilot_s_models_fits_together():
    batch = [payload.frame(index) for index in range(8)]
    seen = vision.Detect(untrained=True).predict(batch)
    (tracked,) = run(make("AP, FD track"), [seen]).outputs
    (foreseen,) = run(make("AP foresee"), [tracked]).outputs
    assert [set(each) for each in vision.Steer().predict(foreseen)] == [{"camera", "label", "turn"}] * 8


def test_two_cameras_side_by_side_are_joined():
    batch = [payload.pair(index) for index in range(8)]
    tracked = {
        side: run(make("AP, FD track"), [vision.Detect(side, untrained=True).predict(batch)]).outputs[0]
        for side in ("left", "right")
    }
    joined = [
        {f"{side}.{name}": value for side in tracked for name, value in tracked[side][row].items()} for row in range(8)
    ]
    assert [set(each) for each in vision.Fuse().predict(joined)] == [{"label", "sure", "near"}] * 8
