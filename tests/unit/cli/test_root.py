"""The root of the command: help without heavy imports, errors as text, exit codes as documented."""

import errno
import os
import subprocess
import sys

import click
import pytest

from spillway.agents.cli import main
from spillway.lineage.errors import BrokerError, SpecError

LINES, SCREEN = 21, 40  # of commands, and of all


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


def test_help_is_one_screen_that_names_exit_codes_and_every_command_on_a_line(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert main.run(["--help"]) == 0
    text = capsys.readouterr().out
    assert len(text.splitlines()) <= SCREEN
    assert "130 interrupted" in text
    listed = text.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    assert len(listed) == len(main.COMMANDS) <= LINES
    for line, name in zip(listed, main.COMMANDS, strict=True):
        assert f" {name} " in line


def commands(group=main.root, *words):
    """Every command that help lists, at any depth, with the words that call it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield (*words, name), command
        if isinstance(command, click.Group):
            yield from commands(command, *words, name)


def test_every_listed_command_can_be_imported_and_has_an_example():
    found = dict(commands())
    for words, command in found.items():
        assert command.name == words[-1]
        assert command.hidden or "Example" in (command.help or "") or len(words) > 1, words
    assert ("change", "scale") in found


def test_options_that_mean_the_same_have_one_name():
    names = {}
    for words, command in commands():
        for option in command.params:
            if isinstance(option, click.Option):
                names.setdefault(option.name, {}).setdefault(tuple(option.opts), []).append(words)
    assert not [found for found in names.values() if len(found) > 1]


def test_every_old_name_runs_the_new_command_and_says_it(capsys):
    assert main.RENAMED["scale"] == "change scale"
    for old, new in main.RENAMED.items():
        assert main.run([*old.split(), "--help"]) == 0, old
        out, err = capsys.readouterr()
        assert out.startswith(f"Usage: spillway {new.partition(' -')[0]} ")
        assert err == f"'spillway {old}' is now 'spillway {new}'\n"


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


@pytest.mark.parametrize("command", ["--help", "demo"])  # written by click, and by rich
def test_a_reader_that_has_read_enough_is_no_failure(command):
    reads, writes = os.pipe()
    os.close(reads)
    line = [sys.executable, "-m", "spillway.agents.cli.main", command]
    with os.fdopen(writes, "w") as closed:
        ended = subprocess.run(line, stdout=closed, stderr=subprocess.PIPE, text=True, timeout=600, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_full_disk_is_said_without_a_traceback(monkeypatch, capsys):
    stub(monkeypatch, raising(OSError(errno.ENOSPC, "No space left on device")))
    assert main.run(["status"]) == 1
    assert "No space left on device" in capsys.readouterr().err


# Where the command looks for users' models: last in the working directory, so that nothing else comes from there.

THEIRS = "raise SystemExit(f'the folder {__name__} of the user has taken the place of another')\n"


def test_what_lies_there_takes_the_place_of_nothing(tmp_path):
    for theirs in ("agents", "checkpoint", "multiprocessing", "numpy"):
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
