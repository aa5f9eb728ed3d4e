"""Capture off a device: what is captured is the state at that version, whatever the device puts off or hurries."""

import threading

import numpy as np
import pytest

from spillway.checkpoint.assembly import Assembler
from spillway.checkpoint.capture import Capture
from spillway.checkpoint.chunks import ChunkLog
from spillway.checkpoint.manifests import describe
from spillway.checkpoint.pages import Pages
from spillway.checkpoint.state import StateError
from spillway.lineage.errors import CheckpointError
from spillway.lineage.marks import Version

from .imagined_device import Device, on_device
from .states import same

SIZE, VERSIONS = 40_000, 6


def read_back(captured):
    writing = ChunkLog(1).write(Version(1, 1), captured)
    records = {key.decode(): bytes(value) for key, value in writing.records()}
    assembler = Assembler(describe(captured, writing))
    for key in assembler.missing():
        assembler.add(key, records["{}/{}/{}".format(*key)])
    return assembler.finish()


def updated(device, capture, state, number):
    """An update as a model makes it: what is on the device changes when its stream gets to it."""
    with capture.updating():
        device.model.give(lambda: np.copyto(state["w"], np.float32(number)))
        state["steps"] += 1  # on the host, at once
        state["seen"].append(number)
    device.model.give(lambda: None)  # the next compute


def expected(number):
    return {
        "w": np.full(SIZE, number, np.float32),
        "b": np.arange(SIZE, dtype=np.int64),
        "steps": np.array(number),
        "seen": list(range(1, number + 1)),
    }


def wrong(device, *, held=0, updating=True):
    """The versions that are not what the state was then. `held`: how many are captured before the first is read."""
    capture = Capture(finder=device.finder)
    state = {
        "w": on_device(np.zeros(SIZE, np.float32)),
        "b": on_device(np.arange(SIZE, dtype=np.int64)),
        "steps": np.array(0),
        "seen": [],
    }
    off, waiting, bad = capture if updating else Capture(finder=lambda: None), [], []
    for n in range(1, VERSIONS + 1):
        updated(device, off, state, n)
        waiting.append((n, capture.take(state)))
        if len(waiting) > held:
            number, captured = waiting.pop(0)
            updated(device, off, state, n + 1) if n == VERSIONS else None
            bad += [number] if not same(read_back(captured)[0], expected(number)) else []
            captured.release()
    return bad


@pytest.mark.parametrize("prompt", ["model", "side", "neither"])
@pytest.mark.parametrize("held", [0, 1, 3])
def test_what_is_captured_is_the_state_of_its_version(prompt, held):
    device = Device(prompt)
    assert wrong(device, held=held) == []
    assert device.buffers == 2 * (held + 1)  # memory is used again


@pytest.mark.parametrize(
    ("prompt", "without"),
    [
        ("model", "follow"),  # the next update does not wait for the copy
        ("side", "after"),  # the copy does not wait for its update
        ("neither", "wait"),  # who reads does not wait for the copy
    ],
)
def test_without_one_of_the_waits_other_bytes_are_captured(prompt, without):
    assert wrong(Device(prompt, without), held=1)


def test_an_update_outside_updating_is_not_waited_for():
    assert wrong(Device("model"), held=1, updating=False)


def test_take_and_updates_wait_for_nothing_on_the_host():
    device = Device("neither")
    capture = Capture(finder=device.finder)
    state = {"w": on_device(np.zeros(SIZE, np.float32)), "steps": np.array(0), "seen": []}
    capture.take(state).release()
    for n in range(1, 4):
        updated(device, capture, state, n)
        capture.take(state).release()
    assert device.model.done == device.side.done == 0


def test_what_did_not_change_is_neither_kept_nor_hashed_again():
    device = Device("model")
    capture = Capture(finder=device.finder)
    state = {"w": on_device(np.zeros(SIZE, np.float32)), "b": on_device(np.arange(SIZE))}
    first = capture.take(state)
    assert first.changed == sum(array.nbytes for array in state.values())
    with capture.updating():
        device.model.give(lambda: np.add(state["w"], 1, out=state["w"]))
    second = capture.take(state)
    assert second.changed == state["w"].nbytes
    shared = [one is other for one, other in zip(first.blocks, second.blocks, strict=True)]
    assert shared == [False, True, True]


def test_a_version_that_nobody_reads_costs_no_comparison_and_its_memory_is_used_again():
    device = Device("model")
    capture = Capture(finder=device.finder)
    state = {"w": on_device(np.zeros(SIZE, np.float32))}
    for _ in range(9):
        capture.take(state).release()
    assert device.buffers == 1
    assert capture.pool.allocated == 0
    captured = capture.take(state)
    captured.release()
    with pytest.raises(CheckpointError, match="after its release"):
        captured.blocks  # noqa: B018
    with pytest.raises(CheckpointError, match="twice"):
        captured.release()


@pytest.mark.parametrize("prompt", ["model", "side", "neither"])
def test_a_key_that_was_touched_in_a_version_that_nobody_reads_is_in_the_next(prompt):
    device = Device(prompt)
    capture = Capture(pages=Pages(4_096), finder=device.finder)
    keyed = {f"user-{number}": {"h": on_device(np.zeros(8)), "n": [0]} for number in range(9)}
    capture.take({}, keyed).release()
    for number, key in enumerate(["user-3", "user-4", "user-3"], 1):
        with capture.updating():
            device.model.give(lambda key=key, number=number: keyed[key]["h"].fill(number))
            keyed[key]["n"].append(number)
        captured = capture.take({}, keyed, [key])
        if number < 3:
            captured.release()
    with capture.updating():
        device.model.give(lambda: keyed["user-3"]["h"].fill(99))
        keyed["user-3"]["n"].append(99)
    _, restored = read_back(captured)
    assert {key: state["h"][0] for key, state in restored.items() if state["h"].any()} == {"user-3": 3, "user-4": 2}
    assert restored["user-3"]["n"] == [0, 1, 3]
    del keyed["user-4"]
    assert "user-4" not in read_back(capture.take({}, keyed, ["user-4"]))[1]


def test_a_refused_state_leaves_everything_as_it_was():
    device = Device("model")
    capture = Capture(finder=device.finder)
    with pytest.raises(StateError, match="bad"):
        capture.take({"w": on_device(np.zeros(8)), "bad": object()})
    assert device.copied_bytes == 0
    assert same(read_back(capture.take({"w": on_device(np.ones(8))}))[0], {"w": np.ones(8)})
    assert device.buffers == 1


def test_a_state_may_move_to_the_host_and_back_and_change_its_shapes():
    device = Device("neither")
    capture = Capture(finder=device.finder)
    kept = []
    for n, make in enumerate([on_device, np.array, on_device, on_device]):
        state = {"w": make(np.full(10 + n // 3, float(n)))}
        kept.append((np.array(state["w"]), capture.take(state)))
    for was, captured in reversed(kept):
        assert same(read_back(captured)[0], {"w": was})


def test_a_reader_on_another_thread_and_the_next_takes_do_not_meet():
    device = Device("side")
    capture = Capture(finder=device.finder, guard=threading.Lock())
    state = {"w": on_device(np.zeros(SIZE, np.float32)), "steps": np.array(0), "seen": []}
    read = []
    for n in range(1, 21):
        updated(device, capture, state, n)
        captured = capture.take(state)
        thread = threading.Thread(target=lambda one=captured: read.append(one.blocks[0].data[:4].view(np.float32)[0]))
        thread.start()
        thread.join() if n % 3 else None
        thread.join()
        captured.release()
    assert read == list(range(1, 21))
