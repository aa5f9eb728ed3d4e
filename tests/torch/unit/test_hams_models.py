"""HAMS' services: their files pass `spillway check`; their models keep the contract, learn, and fit together."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from benchmarks.hams.pipelines import labelling, payload, scenes, speech, stocks, vision  # noqa: E402
from benchmarks.hams.services import SERVICES  # noqa: E402
from spillway.agents.cli.main import run as command  # noqa: E402
from spillway.agents.models.warm_up import rehearse  # noqa: E402
from spillway.producers.load.payloads import find_payload  # noqa: E402
from spillway.topology.load import load  # noqa: E402
from tests.state_runs import run  # noqa: E402


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


def heard(index):
    """What a transcriber without errors makes of the chunk with this index."""
    name, seed, at = payload.place(index)
    return {"stream": name, "words": payload.told(seed).words[at * speech.CHUNK : (at + 1) * speech.CHUNK]}


def seen(index):
    rng = np.random.default_rng(index)
    return {"camera": payload.place(index)[0], "seen": rng.random(vision.SEEN, np.float32)}


def centre(index):
    rng = np.random.default_rng(index)
    return {"camera": payload.place(index)[0], "label": 3, "centre": rng.random(2, np.float32)}


MODELS = {
    "transcribe": (lambda: speech.transcribe(untrained=True), payload.talk),
    "sentiment": (lambda: speech.sentiment(untrained=True), heard),
    "topic": (lambda: speech.topic(untrained=True), heard),
    "lstm": (lambda: stocks.lstm(untrained=True), payload.tick),
    "autoregression": (stocks.autoregression, payload.tick),
    "neighbours": (stocks.neighbours, payload.tick),
    "track": (lambda: vision.track(untrained=True), seen),
    "foresee": (lambda: vision.foresee(untrained=True), centre),
    "large": (lambda: labelling.large(width=0.05), payload.picture),
    "small": (lambda: labelling.small(width=0.05), payload.picture),
}


def batches(query, count, size):
    return [[query(turn * size + row) for row in range(size)] for turn in range(count)]


@pytest.mark.parametrize("name", MODELS)
def test_a_model_keeps_the_contract_and_goes_on_from_any_state(name):
    make, query = MODELS[name]
    asked = batches(query, 4, 10)  # of eight streams: two have a second query in each batch
    found = rehearse(name, make, asked)
    assert found.versions == 4
    assert found.repeats
    assert found.keys == (0 if found.kind == "shared" else len({make().key(each) for batch in asked for each in batch}))


def test_an_online_learner_learns():
    asked = [labelling.pictures(32, seed) for seed in range(40)]
    outputs = run(labelling.large(width=0.05), asked).outputs
    right = [
        [said["label"] == each["label"] for said, each in zip(*pair, strict=True)]
        for pair in zip(outputs, asked, strict=True)
    ]
    assert np.mean(right[:5]) < 0.25
    assert np.mean(right[-10:]) > 0.45


def test_the_cameras_models_fit_together():
    asked = [payload.frame(index) for index in range(8)]
    found = vision.Detect(untrained=True).predict(asked)
    (tracked,) = run(MODELS["track"][0](), [found]).outputs
    (foreseen,) = run(MODELS["foresee"][0](), [tracked]).outputs
    assert [set(each) for each in vision.Steer().predict(foreseen)] == [{"camera", "label", "turn"}] * 8
    joined = [{f"{side}.{key}": value for side in ("left", "right") for key, value in each.items()} for each in tracked]
    assert [set(each) for each in vision.Fuse().predict(joined)] == [{"label", "sure", "near"}] * 8


@pytest.mark.parametrize("service", SERVICES.values(), ids=lambda service: service.name)
def test_a_service_is_served_what_it_takes(service, capsys):
    assert command(["check", str(service.path), "--json"]) == 0, capsys.readouterr().out
    spec = load(service.path).spec
    stateful = {stage.name: stage for stage in spec.stages if stage.stateful}
    assert stateful[service.victim].required_state.kind == ("keyed" if service.key else "shared")
    query = find_payload(service.payload)(3, np.random.default_rng(0))
    assert service.key is None or isinstance(query[service.key], str)
    assert not service.paces or service.paces.keys() == {stage.name for stage in spec.stages}
