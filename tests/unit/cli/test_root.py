"""The root of the command: help without heavy imports, errors as text, exit codes as documented."""

import subprocess
import sys

import click
import pytest

from spillway.agents.cli import main
from spillway.lineage.errors import BrokerError, SpecError


def stub(monkeypatch, action):
    @click.command()
    def status():
        return action()

    monkeypatch.setattr("spillway.agents.cli.commands.status.status", status)


def raising(error):
    def action():
        raise error

    return action


@pytest.mark.parametrize(
    ("action", "code"),
    [
        (lambda: None, 0),
        (lambda: 0, 0),
        (lambda: 1, 1),
        (raising(BrokerError("Kafka is away")), 1),
        (raising(SpecError("a.yaml:3: no such stage")), 2),
        (raising(click.UsageError("what?")), 2),
        (raising(KeyboardInterrupt()), 130),
        (lambda: click.get_current_context().exit(3), 3),
    ],
)
def test_exit_codes(monkeypatch, action, code):
    stub(monkeypatch, action)
    assert main.run(["status"]) == code


def test_errors_are_text_on_stderr(monkeypatch, capsys):
    stub(monkeypatch, raising(SpecError("a.yaml:3: no such stage")))
    main.run(["status"])
    assert capsys.readouterr().err == "error: a.yaml:3: no such stage\n"


@pytest.mark.parametrize("arguments", [["nonsense"], ["serve"], ["serve", "missing.yaml"], ["--nonsense"]])
def test_bad_use_is_2(arguments, capsys):
    assert main.run(arguments) == 2
    assert capsys.readouterr().err


def test_help_names_exit_codes_and_every_command_that_is_there(capsys):
    assert main.run(["--help"]) == 0
    text = capsys.readouterr().out
    assert "130  interrupted" in text
    for name in ("broker", "serve", "status"):
        assert f"  {name} " in text


def test_a_command_whose_module_is_missing_is_not_listed(monkeypatch, capsys):
    monkeypatch.setitem(main.COMMANDS, "later", "Not written yet.")
    main.run(["--help"])
    assert "later" not in capsys.readouterr().out
    assert main.run(["later"]) == 2


def test_every_listed_command_can_be_imported_and_has_an_example():
    context = click.Context(main.root)
    for name in main.root.list_commands(context):
        command = main.root.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert "Example" in (command.help or ""), name


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from spillway.agents.cli import main; main.run(['--help']); "
        "heavy = {'torch', 'faust', 'matplotlib', 'numpy', 'aiokafka', 'confluent_kafka', 'pydantic'}; "
        "print(heavy & sys.modules.keys(), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "set()\n"


# A command that is through ends its process, whatever would not let go of it.

STUCK = """
import sys, threading
from {module} import {name}

class Client:
    def __del__(self):
        threading.Event().wait()  # as librdkafka's clients may, when their broker has gone

kept = Client()
sys.argv = ["spillway", "--version"]
{call}
"""


def run(call, module, name):
    script = STUCK.format(module=module, name=name, call=call)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=False)


def test_the_command_ends_although_a_client_does_not():
    ended = run("main()", "spillway.agents.cli.main", "main")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("spillway ")


def test_what_was_written_is_out_and_the_code_is_kept():
    ended = run("print('x' * 100_000, end=''); sys.stderr.write('why'); end(3)", "spillway.agents.cli.main", "end")
    assert (ended.returncode, len(ended.stdout), ended.stderr) == (3, 100_000, "why")


# Where the command looks for users' models: last in the working directory, so that nothing else comes from there.

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
