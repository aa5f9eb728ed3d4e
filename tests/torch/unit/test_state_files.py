"""A whole state as a file: shared and keyed parts come back bit for bit; what is no such file gives one typed error."""

import json

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.state_copy import state_copy
from spillway.agents.live.operator.histories import Kept
from spillway.agents.live.operator.stored import read_file, write_file
from spillway.checkpoint import safetensors
from spillway.checkpoint.logs import Fate
from spillway.checkpoint.state_files import MAX_TENSORS, read, written
from spillway.lineage.errors import CheckpointError, UsageError
from spillway.lineage.marks import Version
from spillway.lineage.replication import Manifest
from tests.unit.checkpoint.states import same

from .states import keys, states

keyed_states = st.none() | st.dictionaries(keys.filter(bool), states, max_size=4)


@given(states, keyed_states)
def test_a_state_and_its_keys_come_back(state, keyed):
    try:
        data = b"".join(written(state, keyed, {"stage": "detect"}))
    except CheckpointError as error:
        refusal = str(error)
    else:
        refusal = ""
    if refusal:
        assert "complex128" in refusal
        return
    restored, restored_keyed, metadata = read(data)
    assert same(restored, state)
    assert same(restored_keyed, keyed)
    assert metadata == {"stage": "detect"}


def test_a_keyed_file_is_laid_out_as_told():
    keyed = {"u/7": {"h": (torch.zeros(2), torch.ones(2)), "seen": 3}, "new": {}}
    leaves = safetensors.read(b"".join(written({"w": np.ones(1)}, keyed)))
    assert [(entry.name, entry.kind) for entry in leaves.entries] == [
        ("w", "numpy"),
        ("~keys/u~17/h/(0)", "torch"),
        ("~keys/u~17/h/(1)", "torch"),
        ("~keys/u~17/seen", "value"),
    ]
    assert json.loads(leaves.metadata["spillway.keys"]) == ["u/7", "new"]


def test_a_limit_of_entries_is_that_of_one_state_and_not_of_all_keys():
    data = b"".join(written({}, {f"k{number}": {"x": np.zeros(1)} for number in range(5)}))
    with pytest.raises(CheckpointError, match="at most 4 tensors"):
        safetensors.read(data, most=4)
    assert len(read(data)[1]) == 5
    assert MAX_TENSORS > safetensors.MAX_ENTRIES


def file_with(names, keys):
    entries = [safetensors.Entry(name, "numpy", "int8", (1,)) for name in names]
    return b"".join(safetensors.written(entries, [np.ones(1, np.int8)] * len(names), {}, {"spillway.keys": keys}))


@pytest.mark.parametrize(
    ("names", "keys", "said"),
    [
        (["~keys/a/x"], '["b"]', "a key that the file does not list"),
        (["~keys/a"], '["a"]', "belongs to no key"),
        ([], "[", "not JSON"),
        ([], '{"a": 1}', "not a list of strings"),
        ([], '[""]', "not a list of strings"),
        ([], '["a", "a"]', "twice"),
    ],
)
def test_a_contradictory_file_is_refused(names, keys, said):
    with pytest.raises(CheckpointError, match=said):
        read(file_with(names, keys))


# Files of states that an operator writes: whole or not at all. Reading one loads torch where it is installed.

KEPT = Kept(("learn", 0), Manifest(Version(1, 2), digest=b"d" * 16), Fate.DURABLE)


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a.safetensors"
    size = write_file(path, ({"w": np.ones(3)}, None), KEPT, "p")
    assert path.stat().st_size == size
    state, keyed, told = read_file(path)
    assert (state["w"].tolist(), keyed) == ([1, 1, 1], None)
    assert told == {"pipeline": "p", "stage": "learn", "shard": "0", "version": "e1.v2", "digest": "64" * 16}
    with pytest.raises(UsageError, match="is there already"):
        write_file(path, ({}, None), KEPT, "p")
    with pytest.raises(CheckpointError, match="complex128"):
        write_file(tmp_path / "b", ({"w": np.ones(3, np.complex128)}, None), KEPT, "p")
    with pytest.raises(UsageError, match="cannot be written"):
        write_file(tmp_path / "no" / "such", ({}, None), KEPT, "p")
    assert [file.name for file in tmp_path.iterdir()] == ["a.safetensors"]


@pytest.mark.parametrize("content", [b"", b"x" * 100, None])
def test_what_is_no_file_of_a_state_is_named(tmp_path, content):
    path = tmp_path / "a"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=str(path)):
        read_file(path)


# `python -m benchmarks state-copy` measures every step, and writes as little as it says.


def test_it_reports_every_step_of_every_size():
    result = CliRunner().invoke(state_copy, ["--size", "1", "--repeats", "2", "--json"], standalone_mode=False)
    assert result.exit_code == 0, result.output
    (state,) = json.loads(result.output)["states"]
    assert state["written_bytes"] == {"all": 1_000_000, "1 %": state["written_bytes"]["1 %"], "none": 0}
    assert 0 < state["written_bytes"]["1 %"] < 300_000
    assert len(state["costs"]) == 11
    assert all(row["least_ms"] <= row["ms"] <= row["most_ms"] for row in state["costs"].values())
    table = CliRunner().invoke(state_copy, ["--size", "1", "--repeats", "1"], standalone_mode=False)
    assert "verify and assemble" in table.output
