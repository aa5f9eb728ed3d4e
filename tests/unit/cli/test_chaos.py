"""What `spillway chaos` refuses, and how it says so."""

import pytest

from spillway.agents.cli import main

SPEC = """
name: p
slo: 1s
stages:
  - {name: threads, model: "m:M"}
  - {name: own, model: "m:M", workers: {where: process}, after: threads}
"""


@pytest.mark.parametrize(
    ("what", "code", "said"),
    [
        ([], 2, "no fault was named: give --slow"),
        (["--slow", "1s"], 2, "1s is not EVERY:LASTS, as 1s:200ms"),
        (["--hog", "0:1s"], 2, "must be above 0"),
        (["--kill", "1s", "--stage", "onw"], 2, "has no stage 'onw'; did you mean 'own'?"),
        (["--kill", "1s", "--stage", "threads"], 2, "threads has no worker processes on this machine"),
        (["--kill", "1s"], 1, "p is not served under"),
    ],
)
def test_what_cannot_be_struck_is_refused(tmp_path, capsys, what, code, said):
    file = tmp_path / "p.yaml"
    file.write_text(SPEC)
    assert main.run(["chaos", str(file), *what, "--run-dir", str(tmp_path / "run")]) == code
    assert said in capsys.readouterr().err
