"""Every example of docs/clients.md, run as it stands against the pipeline that it names."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from spillway.agents.broker.jars import ensure_jars
from spillway.agents.cli.options import cache_dir
from tests.acceptance.serving import ROOT, serving

PAGE = (ROOT / "docs/clients.md").read_text()
BLOCKS = re.findall(r"^```(python|sh|java)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
SAID = {"python": r"Hello, Ada!", "sh": r'"greeting": "Hello, Ada!"', "java": r'"greeting": "Hello, Ada!"'}


@pytest.fixture(scope="module")
def hello(broker, tmp_path_factory):
    """The environment of a user beside a served `hello`, whose name no other test takes."""
    folder = tmp_path_factory.mktemp("hello")
    with serving(ROOT / "examples/hello/pipeline.yaml", "hello", broker, folder, cwd=ROOT):
        yield {**os.environ, "SPILLWAY_BOOTSTRAP": broker, "PYTHONPATH": str(ROOT)}


def test_the_page_has_examples_in_three_languages():
    assert [language for language, _ in BLOCKS] == ["python", "python", "python", "sh", "java", "python"]


@pytest.mark.parametrize(
    ("language", "code"),
    [pytest.param(*block, marks=pytest.mark.nightly if block[0] == "java" else ()) for block in BLOCKS],
)
def test_an_example_prints_what_it_says(hello, tmp_path, language, code):
    if language == "python":
        command = [sys.executable, "-c", code]
    elif language == "sh":
        if shutil.which("kcat") is None:
            pytest.skip("kcat is not installed")
        command = ["sh", "-ec", code]
    else:
        if shutil.which("javac") is None:
            pytest.skip("no JDK is installed: the runtime that the local Kafka uses compiles nothing")
        (tmp_path / "Ask.java").write_text(code)
        jars = ensure_jars(cache_dir(), notice=lambda _text: None)
        command = ["java", "-cp", ":".join(map(str, jars)), str(tmp_path / "Ask.java")]
    done = subprocess.run(command, env=hello, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert re.search(SAID[language], done.stdout), f"{done.stdout}\n{done.stderr}"
