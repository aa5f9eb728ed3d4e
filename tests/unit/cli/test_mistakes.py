"""What the command says of common mistakes: one line that names the place and the way out."""

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spillway.agents.cli.main import run
from spillway.agents.supervise.serving import NotServedError
from tests.unit.whatif.recordings import Taken, served

PIPELINE = str(Path("examples/hello/pipeline.yaml").absolute())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["stauts"], "no such command 'stauts': did you mean 'status'?"),
        (["broker", "strat"], "no such command 'strat': did you mean 'start'?"),
        (["dead", "xyz"], "no such command 'xyz': there are list, retry, show"),
        (["whatif", PIPELINE, "constant:1", "--slo", "-1"], "-1 is not a duration: give 0 or more seconds"),
        (["whatif", PIPELINE, "constant:1", "--slo", "-5ms"], "-5ms is not a duration: give 0 or more seconds"),
        (["whatif", PIPELINE, "constant:1", "--slo", "0"], "must be above 0"),
        (["whatif", PIPELINE, "constant:1", "--duration", "nan"], "nan is not a duration"),
        (["whatif", PIPELINE, "constant:1", "--once", "--speed", "0"], "0.0 is not in the range x>0"),
        (["whatif", PIPELINE, "constant:1", "--speed", "2"], "--speed is for one run: add --once"),
        (["whatif", PIPELINE, "constant:1", "--once", "--plot", "p.svg"], "--plot is for a comparison"),
        (["whatif", PIPELINE, "constant:1", "--once", "--slo", "1", "--slo", "2"], "--once runs one configuration"),
        (
            ["serve", PIPELINE, "--stage", "greet", "--ready-file", "r"],
            "--ready-file is for the supervisor",
        ),
        (["serve", PIPELINE, "--gate", "--feedback", "taste"], "--feedback is for the supervisor"),
        (["predict", PIPELINE, "--broker-dir", "nowhere", "--bootstrap", "b:1"], "exclude each other"),
        (["predict", PIPELINE, "--broker-dir", "nowhere"], "no broker runs on nowhere: start it with"),
        (["predict", PIPELINE, "out"], "give PIPELINE FILE OUTPUTS with --offline"),
        (["predict", PIPELINE, "--offline"], "give PIPELINE FILE OUTPUTS with --offline"),
        (["predict", PIPELINE, "out", "--offline", "--key", "k"], "--key is for one query"),
        (["broker", "topics", "delete", PIPELINE], "no Kafka broker is named"),
        (["serve", PIPELINE, "--tune-form", "paper"], "--tune-form says how a tuner computes sizes: give --tune"),
        (["serve", PIPELINE, "--replica", "2"], "--replica says which one of a --stage, or of the --gate"),
        (["serve", PIPELINE, "--broker-dir", "nowhere", "--bootstrap", "b:1"], "exclude each other"),
        (["predict", PIPELINE, "--timeout", "soon"], "must be a duration, such as 0.4, '400ms'"),
        (["predict", PIPELINE, "--timeout", "0s"], "must be above 0"),
        (["predict", PIPELINE, "--timeout", "5s", "--deadline", "400ms"], "no Kafka broker is named"),
        (["whatif", PIPELINE, "constant:1", "--plan-period", "2min"], "2min is not from 0.02 to 60 seconds"),
        (["record", PIPELINE, "-o", "r", "--duration", "5min"], "no Kafka broker is named"),
        (["change", "failover", PIPELINE, "greet", "--timeout", "5s"], "stage 'greet' keeps no state"),
        (["dead", "retry", PIPELINE, "0/0", "--deadline", "2s"], "no Kafka broker is named"),
    ],
)
def test_a_mistake_is_named(capsys, monkeypatch, tmp_path, words, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    if "predict" in words:
        (tmp_path / "q.json").write_text("{}")
        words = [*words[:2], "q.json", *words[2:]]
    assert run(words) == 2
    assert said in capsys.readouterr().err


def test_a_replay_says_what_a_recording_lacks_and_whose_it_is(capsys, tmp_path):
    with Taken(tmp_path / "r", "") as taken:
        served(taken, [0.0], 0.01, 1.0)
    with (tmp_path / "r" / "recording-00001.avro").open("ab") as more:
        more.write(b"\x02\x64half a block")
    assert run(["replay", PIPELINE, str(tmp_path / "r"), "--attach", "--bootstrap", "127.0.0.1:1"]) != 0
    said = capsys.readouterr().err
    assert "r was cut off while it was written: its last 14 bytes are left out" in said
    assert "r is a recording of pipeline 'small', not of 'hello'" in said


def test_a_letter_is_not_retried_where_nobody_serves(capsys, monkeypatch):
    class DeadLetters:
        def __init__(self, *_):
            pass

        def picked(self, places):
            return list(places)

        def note_predicted(self, good):
            assert not good

    def unserved(*_):
        raise NotServedError("nobody serves it")

    monkeypatch.setattr("spillway.agents.cli.commands.dead.DeadLetters", DeadLetters)
    monkeypatch.setattr("spillway.agents.cli.commands.dead.require_served", unserved)
    monkeypatch.setattr("spillway.agents.cli.commands.dead.Client", lambda *_: pytest.fail("it was asked"))
    assert run(["dead", "retry", PIPELINE, "0/0", "--bootstrap", "b:1"]) == 1
    assert "nobody serves it" in capsys.readouterr().err


def test_a_broker_dir_on_the_command_line_wins_over_the_environment(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPILLWAY_BOOTSTRAP", "elsewhere:9092")
    (tmp_path / "q.json").write_text("{}")
    assert run(["predict", PIPELINE, "q.json", "--broker-dir", "mine"]) == 2
    assert "no broker runs on mine" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    words = ["state", "list", PIPELINE, "greet", "--bootstrap", "127.0.0.1:1"]
    assert run(["check", str(tmp_path / "file" / "pipeline.yaml")]) == 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spillway.agents.cli.main.root.main", lambda *_, **__: (tmp_path / "file" / "logs").mkdir())
        assert run(words) == 2
        patch.setattr("spillway.agents.cli.main.root.main", lambda *_, **__: os.kill(2**22 - 1, signal.SIGTERM))
        with pytest.raises(ProcessLookupError):  # not a file's: that is a bug of ours, and has its traceback
            run(words)


def test_what_cannot_be_asked_is_not_done(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    folder = tmp_path / "broker"
    folder.mkdir()
    (folder / "broker.json").write_text("{}")
    assert run(["broker", "reset", "--broker-dir", str(folder)]) == 2
    assert "confirm with --yes" in capsys.readouterr().err
    assert folder.exists()
    assert run(["broker", "reset", "--broker-dir", str(folder), "--yes"]) == 0
    assert not folder.exists()


def test_ctrl_c_while_the_command_is_imported_is_one_line():
    code = "import sys, os, signal; sys.modules['spillway.agents.cli.main'] = None; import spillway.entry as entry\n"
    code += "import builtins; real = builtins.__import__\n"
    code += "def late(name, *rest):\n    if name == 'spillway.agents.cli.main': os.kill(os.getpid(), signal.SIGINT)\n"
    code += "    return real(name, *rest)\n"
    code += "builtins.__import__ = late; entry.main()\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")
    assert signal.getsignal(signal.SIGINT) is not None
