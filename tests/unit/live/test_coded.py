"""Answers that are made of parity answers: exact for a linear model over whole numbers, whatever is missing or odd."""

import json
import random
from types import SimpleNamespace

import numpy as np
import pytest

from spillway.agents.cli import main
from spillway.agents.coding.card import (
    Card,
    Tensor,
    deployed_hash,
    digest_of,
    read_card,
    weights_file,
    write_card,
    write_reference,
)
from spillway.agents.coding.codes import Concatenation, SameParity, Sum
from spillway.agents.coding.deployed import Parities
from spillway.agents.core.actions import Ok
from spillway.agents.core.dispatch import Extra, Group, Recovery
from spillway.agents.core.workers import Batch
from spillway.agents.live.stage.batch_work import Prepared
from spillway.agents.live.stage.coded import CodeWork, Coding, alike, load_coding
from spillway.agents.live.stage.redundancy_workers import Beside
from spillway.agents.metrics import StageMetrics
from spillway.agents.models.inputs import Inputs
from spillway.agents.workers.identity import model_hash
from spillway.lineage.errors import ModelError, UsageError
from spillway.topology.load import parse
from spillway.topology.sections import CodingSpec
from tests.unit.core.builders import NOW, delivery, stage_core
from tests.unit.supervise.test_readings import told

MATRIX = np.arange(12.0).reshape(3, 4) - 5
CARD = Card(
    model="m:M",
    model_hash=None,
    k=2,
    row=0,
    encoder="sum",
    architecture="m:M",
    arguments={},
    inputs={"x": Tensor(dtype="float64", shape=(4,))},
    outputs={"y": Tensor(dtype="float64", shape=(3,))},
    weights="",
    degraded=0.5,
)


def model(x):
    return {"y": MATRIX @ x}


class Work:
    """A stage's work, whose queries are their own payloads and whose results are the outputs."""

    def prepare(self, batch):
        inputs = [Inputs(request, {}, "", "") for request in batch.requests]
        return Prepared(batch, [None] * len(inputs), inputs, list(range(len(inputs))))

    def made(self, _batch, outputs, _seconds, _model):
        return outputs


def work_of(k, rows, code=Sum):
    spec = CodingSpec(k=k, rows=rows, parity="unused")
    x = np.array([1.0, 0, 2, 0])
    reference = ({"x": x}, model(x))
    return CodeWork(Work(), Coding(spec, Parities(None, [CARD] * rows, reference), code(k)))


def answered(work, group, row, draw=None):
    """Answer a group by the parity model of a row; with `draw`, nearly all of it."""
    extra = Extra(group, row)
    prepared = work.prepare(extra)
    for place, inputs in enumerate(prepared.inputs):
        answers = draw is None or draw.random() < 0.95
        work.result(prepared, place, {"outputs": model(inputs["x"])} if answers else {}, 0.1)
    group.rows[row] = extra


def odd(draw, value):
    """A query that cannot be coded, now and then."""
    kind = draw.randrange(12)
    if kind == 0:
        return {"x": np.array([np.nan, 1, 2, 3])}
    if kind == 1:
        return {"x": np.ones(5)}
    if kind == 2:
        return {"x": value, "more": 1}
    return {"x": value}


def test_whatever_is_missing_or_odd_what_is_made_is_exact():
    made = uncoded = graded = 0
    for seed in range(200):
        draw = random.Random(seed)
        k = draw.randint(2, 4)
        rows = draw.randint(1, 2)
        work, group = work_of(k, rows), Group()
        for worker in range(draw.randint(1, k)):
            queries = [
                odd(draw, np.array([float(draw.randint(-9, 9)) for _ in range(4)])) for _ in range(draw.randint(1, 3))
            ]
            group.batches.append(Batch(worker, queries, 0.0, 0.0))
        for row in draw.sample(range(rows), draw.randint(1, rows)):
            answered(work, group, row, draw)
        missing = draw.sample(range(len(group.batches)), min(len(group.batches), draw.randint(1, len(group.rows))))
        for slot, batch in enumerate(group.batches):
            if slot not in missing:
                group.answered.add(slot)
                batch.outputs = [
                    model(query["x"]) if query["x"].shape == (4,) and draw.random() < 0.95 else None
                    for query in batch.requests
                ]
        for batch, results in work.recover(Recovery(group, tuple(missing))):
            for query, result in zip(batch.requests, results, strict=True):
                codable = query.keys() == {"x"} and query["x"].shape == (4,) and np.isfinite(query["x"]).all()
                uncoded += not codable
                if result is not None:
                    assert codable, seed
                    assert np.array_equal(result["y"], model(query["x"])["y"]), seed
                    assert result.flags == {"reconstructed": True, "expected": 0.5}
                    made += 1
        graded += grade_late(draw, work, group, missing)
    assert made > 200
    assert graded == made
    assert uncoded > 20


def grade_late(draw, work, group, missing):
    """Give the missing batches their own answers, some other than they were made, and have them graded."""
    agreed = graded = 0
    for slot in missing:
        batch, wrong = group.batches[slot], draw.random() < 0.5
        batch.outputs = [model(q["x"]) if q["x"].shape == (4,) else None for q in batch.requests]
        codable = sum(answer is not None for answer in group.answers.get(slot, []))
        if wrong:
            batch.outputs = [o and {"y": o["y"] + np.eye(3)[(np.argmax(o["y"]) + 1) % 3] * 999} for o in batch.outputs]
        told = work.grade(Recovery(group, (slot,)))
        assert told == (0 if wrong else codable, codable)
        agreed, graded = agreed + told[0], graded + told[1]
    return graded


def test_answers_that_came_first_grade_what_would_have_been_made():
    work, group = work_of(3, 1), Group()
    for slot in range(3):
        batch = Batch(slot, [{"x": np.arange(4.0) + slot}, {"x": np.ones(4 + slot % 2)}], 0.0, 0.0)
        batch.outputs = [model(batch.requests[0]["x"]), model(np.ones(4))]
        group.batches.append(batch)
    answered(work, group, 0)
    assert work.grade(Recovery(group, (0, 1, 2))) == (5, 5)  # one is not coded


@pytest.mark.parametrize(
    ("one", "other", "same", "near"),
    [
        ({"label": 3}, {"label": 3}, True, True),
        ({"label": 3}, {"label": 4}, False, False),
        ({"label": "a"}, {"label": "b"}, False, False),
        ({"boxes": [np.zeros(4), 0.5]}, {"boxes": [np.full(4, 0.05), 0.55]}, False, True),
        ({"boxes": [1.0]}, {"boxes": [1.0, 1.0]}, False, False),
        ({"y": np.zeros(3)}, {"y": np.zeros(4)}, False, False),
        ({"y": np.array([np.nan])}, {"y": np.array([np.nan])}, False, False),
        ({"y": 1.0}, {"z": 1.0}, False, False),
        ({"y": None}, {"y": None}, True, True),
        ({"y": True}, {"y": False}, False, False),
    ],
)
def test_answers_are_alike_but_for_small_numbers(one, other, same, near):
    assert (alike(one, other, 0.0), alike(one, other, 0.1)) == (same, near)


def test_what_comes_out_infinite_is_none():
    work, group = work_of(2, 1), Group()
    group.batches = [Batch(0, [{"x": np.ones(4)}], 0, 0), Batch(1, [{"x": np.ones(4)}], 0, 0)]
    group.batches[0].outputs = [{"y": np.ones(3)}]
    extra = Extra(group, 0)
    work.prepare(extra)
    extra.outputs = [{"y": np.array([np.inf, 0, 0])}]
    group.rows[0] = extra
    assert work.recover(Recovery(group, (1,))) == [(group.batches[1], [None])]


def test_the_same_row_twice_tells_one_missing_answer_and_not_two():
    x = [{"x": np.arange(4.0)}, {"x": np.ones(4)}]
    answers = [model(each["x"]) for each in x]
    for code, solved in ((Sum(2), True), (SameParity(2), False)):
        parities = {row: model(code.encode(x, row)["x"]) for row in range(2)}
        assert np.allclose(code.decode([answers[0], None], parities)[1]["y"], answers[1]["y"])
        both = code.decode([None, None], parities)
        assert (both is not None) == solved
        if solved:
            assert all(np.allclose(both[place]["y"], answers[place]["y"]) for place in range(2))


def test_images_are_downsized_and_put_side_by_side():
    images = [{"x": np.full((3, 4, 4), float(n))} for n in range(4)]
    pair = Concatenation(2).encode(images[:2], 0)["x"]
    assert pair.shape == (3, 4, 4)
    assert (pair[0, 0].tolist(), pair[2, 3].tolist()) == ([0, 0, 1, 1], [0, 0, 1, 1])
    square = Concatenation(4).encode(images, 0)["x"]
    assert square[1].tolist() == [[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 3, 3], [2, 2, 3, 3]]
    with pytest.raises(UsageError, match="in a grid, not 5"):
        Concatenation(5)
    with pytest.raises(UsageError, match="5 by 4 is not divisible"):
        Concatenation(4).encode([{"x": np.zeros((5, 4))}] * 4, 0)


# A folder of parity models is used for what its cards say, and for nothing else.

PIPELINE = (
    "name: p\nslo: 1s\nstages:\n  - {{name: f, model: '{model}', {more}coding: {{k: {k}, parity: parity{coding}}}}}\n"
)


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "parity"
    place.mkdir()
    np.savez(weights_file(place, 0), w=MATRIX)
    write_card(place, CARD.model_copy(update={"weights": digest_of(weights_file(place, 0))}))
    write_reference(place, {"x": np.ones(4)}, model(np.ones(4)))
    return place


def text(model="m:M", k=2, coding="", more=""):
    return PIPELINE.format(model=model, k=k, coding=coding, more=more)


def loaded(folder, **changed):
    stage = parse(text(**changed), "p.yaml").spec.stages[0]
    return load_coding(stage, stage.coding, folder.parent)


def test_a_folder_that_fits_is_read(folder):
    parities = loaded(folder, more="inputs: {x: {dtype: float64, shape: [null]}}, ").parities
    assert (parities.expected, parities.outdated) == (0.5, "")
    assert parities.reference[1]["y"].tolist() == (MATRIX @ np.ones(4)).tolist()


def other_card(**changed):
    return lambda folder: write_card(folder, read_card(folder, 0).model_copy(update=changed))


def second_row(folder):
    np.savez(weights_file(folder, 1), w=MATRIX)
    card = read_card(folder, 0).model_copy(update={"row": 1, "outputs": {"y": Tensor(dtype="float64", shape=(2,))}})
    write_card(folder, card)


def written(name, text):
    return lambda folder: (folder / name).write_text(text)


def remove(name):
    return lambda folder: (folder / name).unlink()


REFUSED = [
    ({"k": 3}, None, "is for k 2, not 3; train it again: spillway train parity"),
    ({"model": "m:Other"}, None, "is for model 'm:M', not 'm:Other'"),
    ({"coding": ", encoder: concatenation"}, None, "is for encoder 'sum', not 'concatenation'"),
    ({"coding": ", encoder: xor"}, other_card(encoder="xor"), "no encoder 'xor'"),
    (
        {"k": 3, "coding": ", encoder: concatenation"},
        other_card(k=3, encoder="concatenation"),
        r"takes images, and an input of shape \[4\] is not an image",
    ),
    ({"coding": ", rows: 2"}, None, "there is no parity model of row 1"),
    ({"coding": ", rows: 2"}, second_row, "of row 1 in .* is for other tensors than the one of row 0"),
    ({"more": "inputs: {x: {dtype: float64, shape: [5]}}, "}, None, r"has float64 \[4\] as input 'x', .*float64 \[5\]"),
    ({"more": "inputs: {z: {dtype: float64}}, "}, None, "has no input 'z'"),
    ({}, other_card(outputs={"y": Tensor(dtype="int64", shape=(3,))}), "output 'y' is int64, which cannot be summed"),
    ({"more": "default: {y: [0, 0, 0]}, "}, None, r"no output 'y' that is float64 \[3\], as the model returns"),
    ({}, written("row0.json", "{}"), "is not the card of a parity model"),
    (
        {},
        lambda folder: (folder / "row0.json").write_text(CARD.model_copy(update={"row": 1}).model_dump_json()),
        "row 1",
    ),
    ({}, remove("row0.json"), "there is no parity model of row 0"),
    ({}, remove("row0.npz"), "row0.npz cannot be read"),
    (
        {},
        lambda folder: np.savez(folder / "reference.npz", **{"in.x": np.ones(3)}),
        "'x' is missing or does not match the card",
    ),
]


@pytest.mark.parametrize(("changed", "spoil", "said"), REFUSED)
def test_check_and_serve_refuse_the_same(folder, changed, spoil, said, capsys):
    if spoil is not None:
        spoil(folder)
    with pytest.raises(ModelError, match=f"stage 'f': .*{said}") as caught:
        loaded(folder, **changed)
    file = folder.parent / "p.yaml"
    file.write_text(text(**changed))
    assert main.run(["check", str(file), "--json"]) == 2
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert (problem["path"], problem["text"]) == ("stages[0].coding", str(caught.value))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: np.savez(folder / "row0.npz", w=MATRIX + 1), "does not match its card"),
        (other_card(model_hash="another"), "made for another version of m:M"),
    ],
)
def test_another_version_pauses_coding_and_is_not_refused(folder, spoil, said, capsys):
    spoil(folder)
    coding = loaded(folder)
    assert said in coding.parities.outdated
    dispatch = coding.dispatch()
    core = stage_core("chain", "b", instances=2, steps=[dispatch])
    dispatch.attach(0, 0)
    for n in range(2):
        core.deliver(NOW, delivery(str(n), n, "a"))
    for batch in core.take_runs():
        core.complete(NOW, batch, [Ok({"c": 0})], 0.01)
    assert (dispatch.take_extras(NOW), dispatch.stats.paused, core.unsettled) == ([], 1, 2)
    metrics = StageMetrics("p", "f", 0)
    metrics.dispatch = dispatch
    assert any("coding is paused: its parity models belong to another version" in line for line in told(metrics))
    file = folder.parent / "p.yaml"
    file.write_text(text())
    assert main.run(["check", str(file), "--json"]) == 0
    (remark,) = (each for each in json.loads(capsys.readouterr().out)["remarks"] if "coding" in each)
    assert said in remark


def test_weights_that_an_argument_names_belong_to_the_version(folder, monkeypatch):
    monkeypatch.syspath_prepend(folder.parent)
    (folder.parent / "weighed.py").write_text("")
    (folder.parent / "weights.pt").write_bytes(b"one")
    first = deployed_hash("weighed:M", {"file": "weights.pt", "size": 3})
    (folder.parent / "weights.pt").write_bytes(b"two")
    assert first != deployed_hash("weighed:M", {"file": "weights.pt", "size": 3})
    assert deployed_hash("weighed:M", {"file": "nowhere.pt"}) == model_hash("weighed:M", {"file": "nowhere.pt"})


def test_parity_workers_follow_the_stages_own():
    asked = []
    crews = [SimpleNamespace(resize=asked.append), SimpleNamespace(resize=asked.append)]
    for workers in (1, 2, 3, 7, 4):
        Beside(None, crews, None, per=3).resize(workers)
    assert asked == [1, 1, 1, 1, 1, 1, 3, 3, 2, 2]
    Beside(None, crews, None).resize(9)  # copies
    assert len(asked) == 10
