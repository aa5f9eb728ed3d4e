"""Where the command looks for users' models: last in the working directory, so that nothing else comes from there."""

import subprocess
import sys

import pytest

THEIRS = "raise SystemExit('a folder of the user has taken the place of another')\n"


@pytest.mark.parametrize("theirs", ["agents", "checkpoint", "multiprocessing", "numpy"])
def test_what_lies_there_takes_the_place_of_nothing(tmp_path, theirs):
    (tmp_path / theirs).mkdir()
    (tmp_path / theirs / "__init__.py").write_text(THEIRS)
    (tmp_path / "own_models.py").write_text("class Echo:\n    def predict(self, batch):\n        return batch\n")
    (tmp_path / "p.yaml").write_text("{name: p, slo: 1s, stages: [{name: echo, model: 'own_models:Echo'}]}")
    command = "from spillway.entry import main; main()"
    done = subprocess.run(  # --models: in a process that is spawned, and looks for everything anew
        [sys.executable, "-P", "-c", command, "check", "p.yaml", "--models"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
