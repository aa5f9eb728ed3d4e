"""Capture: the state as it was at that moment, no change lost, nothing copied twice, memory used again."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spillway.checkpoint.assembly import Assembler
from spillway.checkpoint.capture import Capture
from spillway.checkpoint.chunks import ChunkLog
from spillway.checkpoint.manifests import describe
from spillway.checkpoint.pages import Pages
from spillway.checkpoint.state import StateError
from spillway.lineage.errors import CheckpointError
from spillway.lineage.marks import Version
from tests.unit.checkpoint.states import same

from .states import states


def read_back(captured):
    """What a reader makes of a captured version that is written in full."""
    writing = ChunkLog(1).write(Version(1, 1), captured)
    records = [(key, bytes(value)) for key, value in writing.records()]
    return assembled(describe(captured, writing), records)


def assembled(contents, records):
    assembler = Assembler(contents)
    stored = {key.decode(): value for key, value in records}
    for key in assembler.missing():
        assembler.add(key, stored["{}/{}/{}".format(*key)])
    return assembler.finish()


@given(states, st.sampled_from([64, 256, 1 << 18]), st.sampled_from([0, 16, 1 << 16]))
def test_what_is_captured_and_written_is_the_state(state, chunk_bytes, own_bytes):
    captured = Capture(chunk_bytes=chunk_bytes, own_bytes=own_bytes).take(state)
    restored, keyed = read_back(captured)
    assert same(restored, state)
    assert keyed is None
    assert all(len(block.data) <= chunk_bytes for block in captured.blocks)


def test_what_is_captured_stays_as_it_was():
    state = {"w": torch.zeros(1_000), "n": np.zeros(3), "v": [1, [2]]}
    captured = Capture().take(state)
    state["w"].add_(1)
    state["n"] += 1
    state["v"][1].append(3)
    restored, _ = read_back(captured)
    assert restored["w"].sum() == 0
    assert restored["n"].tolist() == [0, 0, 0]
    assert restored["v"] == [1, [2]]


def changes(state):
    """The ways in which models write to their tensors, those that torch does not see among them."""
    w = state["w"]
    yield "in place", lambda: w.add_(1)
    yield "through .data", lambda: w.data.add_(1)
    yield "through a detached view", lambda: w.detach()[-1:].add_(1)
    yield "through numpy", lambda: np.add(w.detach().numpy(), 1, out=w.detach().numpy())
    yield "by another tensor in its place", lambda: state.update(w=torch.full_like(w, 17.0))
    yield "by one bit", lambda: w.detach().view(torch.int32)[70_000].bitwise_xor_(1)


@pytest.mark.parametrize("which", range(6))
def test_every_way_to_write_is_seen(which):
    state = {"w": torch.zeros(100_000), "other": torch.zeros(100_000)}
    capture = Capture()
    capture.take(state).release()
    _, change = list(changes(state))[which]
    change()
    captured = capture.take(state)
    assert same(read_back(captured)[0], state)
    assert captured.changed < 800_000  # the other one was not copied


def test_what_did_not_change_is_neither_copied_nor_hashed_again():
    state = {"w": torch.zeros(300_000), "b": torch.zeros(300_000)}
    capture = Capture()
    first = capture.take(state)
    state["w"][0] = 1
    second = capture.take(state)
    shared = [one is other for one, other in zip(first.blocks, second.blocks, strict=True)]
    assert shared.count(False) == 1
    assert second.changed == len(second.blocks[shared.index(False)].data)


def test_memory_is_used_again():
    state = {"w": np.zeros(200_000, np.float32)}
    capture = Capture()
    held = []
    for n in range(12):
        state["w"].fill(n)
        held.append(capture.take(state))
        if len(held) > 3:  # as the slots hold them
            held.pop(0).release()
    assert capture.pool.allocated == 4 * 800_000
    captured = held.pop()
    captured.release()
    with pytest.raises(CheckpointError, match="twice"):
        captured.release()


def test_new_entries_have_a_new_layout():
    capture = Capture()
    capture.take({"w": torch.zeros(10)}).release()
    for state in ({"w": torch.ones(20)}, {"w": torch.ones(20), "b": np.ones(3, np.int8)}, {}, {"v": 3}):
        assert same(read_back(capture.take(state))[0], state)


def test_a_refused_state_leaves_everything_as_it_was():
    state = {"w": torch.zeros(10)}
    capture = Capture()
    capture.take(state)
    with pytest.raises(StateError):
        capture.take({"w": torch.zeros(10), "bad": object()})
    assert capture.take(state).changed == 0


def user(number):
    return {"h": (torch.full((8,), float(number)), torch.zeros(8)), "seen": number}


def test_only_touched_keys_are_captured():
    keyed = {f"user-{number}": user(number) for number in range(100)}
    capture = Capture(chunk_bytes=4_096, pages=Pages(4_096, page_bytes=512))
    first = capture.take({}, keyed)
    keyed["user-7"]["h"][0].fill_(-1)
    keyed["user-8"]["h"][0].fill_(-1)
    second = capture.take({}, keyed, ["user-7"])
    pages = zip(first.pages, second.pages, strict=True)
    assert sum(one is not other for one, other in pages) == 1
    assert 0 < second.changed < 1_000
    _, restored = read_back(second)
    assert restored["user-7"]["h"][0].tolist() == [-1.0] * 8
    assert restored["user-8"]["h"][0].tolist() == [8.0] * 8  # as it was not named
    assert same(restored["user-9"], keyed["user-9"])


keyed_steps = st.lists(
    st.dictionaries(st.text(min_size=1, max_size=3).filter(str.isascii), st.none() | st.integers(0, 999), max_size=4),
    max_size=6,
)


@given(keyed_steps, st.sampled_from([1, 4]))
def test_keys_come_change_and_go(steps, count):
    capture = Capture(chunk_bytes=128, pages=Pages(128, page_bytes=100, count=count))
    keyed = {}
    capture.take({"shared": np.zeros(3)}, keyed).release()
    for step in steps:
        for key, number in step.items():
            if number is None:
                keyed.pop(key, None)
            else:
                keyed[key] = user(number)
        state, restored = read_back(capture.take({"shared": np.zeros(3)}, keyed, step))
        assert restored.keys() == keyed.keys()
        assert all(same(restored[key], keyed[key]) for key in keyed)
        assert state["shared"].tolist() == [0, 0, 0]


def test_pages_grow_with_the_state_and_depend_on_it_alone():
    keyed = {f"user-{number}": user(number) for number in range(500)}
    grown = Pages(4_096, page_bytes=1_024)
    for key, state in keyed.items():
        grown.update({key: state}, [key])
    count = len(grown.now)
    assert 500 * 150 / 2_048 < count < 500 * 400 / 1_024
    at_once = Pages(4_096, page_bytes=1_024, count=count)
    at_once.update(keyed, None)
    assert [page.parts for page in at_once.now] == [page.parts for page in grown.now]
    assert at_once.update({}, None) == 0
    assert not any(page.parts for page in at_once.now)


@pytest.mark.parametrize("count", [0, 3, 1 << 20])
def test_a_number_of_pages_that_cannot_be_is_refused(count):
    with pytest.raises(CheckpointError, match="power of two"):
        Pages(4_096, count=count)
