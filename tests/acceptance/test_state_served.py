"""States of a pipeline that is really served: it goes on from what an operator has put in, and with its positions."""

import re
import subprocess
from contextlib import contextmanager

import numpy as np
import pytest

from spillway.agents.cli.main import run
from spillway.agents.live.operator.histories import Kept
from spillway.agents.live.operator.stored import write_file
from spillway.checkpoint.logs import Fate
from spillway.lineage.marks import Version
from spillway.lineage.replication import Manifest
from spillway.producers.client import Client
from spillway.producers.connection import ClientSettings
from spillway.topology.load import load
from tests.acceptance.serving import SPILLWAY, serving

MODEL = """
import numpy as np


class Count:
    def initialize(self):
        return {"seen": np.zeros(3, np.int64), "asked": ()}

    def compute(self, state, batch):
        return [{"n": int(state["seen"][0]) + at + 1} for at, _ in enumerate(batch)]

    def update(self, state, batch, outputs):
        state["seen"][0] += len(batch)
        return {**state, "asked": (*state["asked"], *(query["x"] for query in batch))}
"""


@pytest.fixture
def pipeline(unique_name, tmp_path, broker, monkeypatch):
    monkeypatch.setenv("SPILLWAY_BOOTSTRAP", broker)
    module = "counting_of_" + unique_name.replace("-", "_")
    (tmp_path / f"{module}.py").write_text(MODEL)
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        f"name: {unique_name}\nslo: 60s\npartitions: 1\nstages:\n"
        f'  - {{name: learn, model: "{module}:Count", state: shared}}\n'
    )
    return file


@pytest.fixture
def served(pipeline, broker, tmp_path):
    """Serve the pipeline for a while; gives what asks it, one query after the other."""
    spec = load(pipeline).spec
    times = iter(range(9))

    @contextmanager
    def serve():
        folder = tmp_path / f"served-{next(times)}"
        folder.mkdir()
        with serving(pipeline, spec.name, broker, folder, cwd=tmp_path) as process:
            with Client(spec, ClientSettings(bootstrap=broker)) as client:

                def ask(*queries):
                    return [client.submit({"x": x}).result().outputs["n"] for x in queries]

                yield ask
            assert process.stop() == 0

    return serve


def state(capsys, command, pipeline, *arguments):
    """A `spillway state` command: exit code, output, complaints."""
    capsys.readouterr()
    return run(["state", command, str(pipeline), *map(str, arguments)]), *capsys.readouterr()


@pytest.mark.nightly
def test_a_served_pipeline_goes_on_from_what_the_operator_put_in(served, pipeline, tmp_path, capsys):
    file = tmp_path / "learn.safetensors"
    with served() as ask:
        assert ask("a", "b", "c", "d", "e") == [1, 2, 3, 4, 5]
        code, _, err = state(capsys, "rewind", pipeline, "learn", "e1.v4", "--yes")
        assert code == 2
        assert "learn/0 is served: its " in err
        assert ask("f") == [6]
    code, out, _ = state(capsys, "export", pipeline, "learn", file, "--json")
    assert code == 0
    assert '"standing": "durable"' in out
    code, out, err = state(capsys, "rewind", pipeline, "learn", "e1.v5", "--yes")
    assert (code, err) == (0, "")
    with served() as ask:
        assert ask("g", "h") == [6, 7]  # it has forgotten f, and is not given it again
    code, _, err = state(capsys, "import", pipeline, "learn", file)
    assert (code, err) == (0, "")
    with served() as ask:
        assert ask("i") == [7]
    code, out, _ = state(capsys, "show", pipeline, "learn")
    assert code == 0
    assert "('a', 'b', 'c', 'd', 'e', 'f', 'i')" in out
    assert re.search(r"input 0 +covered below offset 9\n", out)


@pytest.mark.nightly
def test_a_new_pipeline_begins_with_an_imported_state(served, pipeline, tmp_path, capsys):
    file = tmp_path / "other.safetensors"
    kept = Kept(("learn", 0), Manifest(Version(1, 1)), Fate.DURABLE)
    write_file(file, ({"seen": np.array([40, 0, 0]), "asked": ("x",)}, None), kept, "another")
    assert state(capsys, "import", pipeline, "learn", file, "--check")[0] == 0
    with served() as ask:
        assert ask("a", "b") == [41, 42]


@pytest.mark.nightly
def test_a_state_that_another_model_made_is_refused_before_anything_is_served(served, pipeline, tmp_path, broker):
    (module,) = tmp_path.glob("counting_of_*.py")
    fixed = MODEL.replace("class Count:", "class Count:\n    fixed_state = True\n")
    module.write_text(fixed)
    with served() as ask:
        assert ask("a") == [1]
    with served() as ask:
        assert ask("b") == [2]
    module.write_text(fixed.replace("np.zeros(3", "np.zeros(5"))
    command = [SPILLWAY, "serve", pipeline, "--bootstrap", broker, "--run-dir", tmp_path / "run", "--quiet"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=300)
    assert ended.returncode == 1
    assert "the state in the log does not fit Count: 'seen' is numpy int64 [3]" in ended.stderr
    assert "1 more" not in ended.stderr
