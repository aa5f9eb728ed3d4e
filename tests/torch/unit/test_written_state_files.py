"""Files of states that an operator writes: whole or not at all. Reading one loads torch where it is installed."""

import numpy as np
import pytest

from agents.live.operator.histories import Kept, Standing
from agents.live.operator.stored import read_file, write_file
from lineage.errors import CheckpointError, UsageError
from lineage.marks import Version
from lineage.replication import Manifest

KEPT = Kept(("learn", 0), Manifest(Version(1, 2), digest=b"d" * 16), Standing.DURABLE)


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
