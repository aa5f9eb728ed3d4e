"""A command that is through ends its process, whatever would not let go of it."""

import subprocess
import sys

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
    ended = run("main()", "agents.cli.main", "main")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("spillway ")


def test_what_was_written_is_out_and_the_code_is_kept():
    ended = run("print('x' * 100_000, end=''); sys.stderr.write('why'); end(3)", "agents.cli.main", "end")
    assert (ended.returncode, len(ended.stdout), ended.stderr) == (3, 100_000, "why")
