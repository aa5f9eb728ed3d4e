"""The records of the table of sizes, and which of two counts."""

import json
from dataclasses import asdict, replace

import pytest

from spillway.lineage.errors import CheckpointError
from spillway.topology.load import parse
from spillway.topology.sizes import Size, decode, encode, from_file, key_of, sized

SIZE = Size(3, "ada@host", "evening", 1_700_000_000.5, 4, "abc")
FILE = (
    "{name: p, slo: 1, partitions: 6, stages: [{name: a, model: 'm:M', workers: {count: 5, fronts: 2}},"
    "{name: b, after: a, model: 'm:M'}, {name: c, after: b, model: 'm:M', state: shared}]}"
)
PIPELINE = parse(FILE)
A, B, C = map(key_of, "abc")


def test_a_record_is_read_as_it_was_written():
    assert decode(encode(SIZE)) == SIZE
    assert decode(encode(replace(SIZE, at=5))).at == 5.0
    assert A == b"a/main"


@pytest.mark.parametrize(
    "change",
    [
        {"count": "3"},
        {"count": True},
        {"count": -1},
        {"count": 2_000_000},
        {"epoch": 0},
        {"at": float("nan")},
        {"at": 2.0**34},
        {"who": None},
        {"held": 1},
    ],
)
def test_a_record_that_is_none_is_refused_with_what_is_wrong(change):
    ((name, given),) = change.items()
    with pytest.raises(CheckpointError, match=rf"^{name}: .*, not {given!r}$"):
        decode(json.dumps({**asdict(SIZE), **change}).encode())


@pytest.mark.parametrize("value", [b"{", b"\xff\xfe", b"[1]", b"3", b"{}"])
def test_rubbish_is_refused(value):
    with pytest.raises(CheckpointError):
        decode(value)


def test_what_a_later_version_adds_is_passed_over_and_texts_are_bounded():
    found = decode(json.dumps({**asdict(SIZE), "hardware": "x", "why": "y" * 100_000}).encode())
    assert found == replace(SIZE, why="y" * 1_000)


def test_a_record_without_a_word_of_it_is_not_held():
    told = asdict(SIZE)
    del told["held"]
    assert not decode(json.dumps(told).encode()).held
    held = replace(SIZE, held=True)
    assert (decode(encode(held)), "held" in held.text) == (held, True)


def test_a_file_writes_its_sizes_once_and_again_when_it_is_changed():
    first = from_file(PIPELINE, {}, "me", 9.0, 1)
    assert {key: (size.count, size.epoch) for key, size in first.items()} == {A: (5, 1), B: (1, 1)}
    scaled = {**first, A: replace(first[A], count=8, epoch=2)}
    assert from_file(PIPELINE, scaled, "me", 9.0, 5) == {}
    changed = parse(FILE.replace("slo: 1", "slo: 2"))
    assert {key: (size.count, size.epoch) for key, size in from_file(changed, scaled, "me", 9.0, 5).items()} == {
        A: (5, 5),
        B: (1, 5),
    }
    assert from_file(changed, scaled, "me", 9.0, 1)[A].epoch == 3, "never below what stands"
    assert set(from_file(changed, scaled, "me", 9.0, 5, "b")) == {B}


def test_the_tables_counts_are_dealt_out_to_the_fronts():
    spec = sized(PIPELINE.spec, {A: replace(SIZE, count=3)})
    assert [spec.stage("a").workers.of_front(front) for front in (0, 1)] == [2, 1]
    assert spec.stage("b") == PIPELINE.spec.stage("b")


def test_a_size_that_leaves_a_front_without_a_worker_or_is_of_a_state_is_left():
    assert sized(PIPELINE.spec, {A: replace(SIZE, count=1), C: SIZE}) == PIPELINE.spec
