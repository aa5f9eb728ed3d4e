"""A model's log lines from a real worker process, which has the front's stderr."""

import json
import re
import subprocess
import sys

import pytest

from spillway.agents import log
from spillway.agents.workers import links as links_module
from spillway.agents.workers.processes import command_of, started
from spillway.topology.sections import WorkersSpec
from spillway.topology.spec import StageSpec
from tests.integration.workers.conftest import SECONDS, query

MODEL = """
import logging

log = logging.getLogger("mine.model")
log.info("imported")


class Says:
    def __init__(self):
        log.warning("constructed")

    def predict(self, batch):
        log.debug("nobody hears this")
        log.info("asked %d", len(batch))
        try:
            raise ValueError("no")
        except ValueError:
            log.exception("failed")
        return [{} for _ in batch]
"""
AS_A_THREAD = """
from spillway.agents import log

log.as_parent()
import said_models
said_models.Says().predict([{}])
"""


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("form", ["text", "json"])
def test_logging_arrives_as_a_threads_does(heard, tmp_path, monkeypatch, capfd, own, form):
    for name, value in log.environment(form, "s", 1).items():  # as the front has it
        monkeypatch.setenv(name, value)
    (tmp_path / "said_models.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    workers = WorkersSpec(where="process", python=sys.executable if own else None)
    links = links_module.Links(heard, timeout=SECONDS)
    links.adopt(0, *started(command_of(StageSpec(name="s", model="said_models:Says", workers=workers), 1)))
    heard.next("ready")
    links.send(0, "job", [query(n=1)], singly=False)
    heard.next("answered")
    links.close()
    from_worker = capfd.readouterr().err
    thread = [sys.executable, "-c", f"import sys; sys.path[:0] = {[*sys.path]!r}\n{AS_A_THREAD}"]
    from_thread = subprocess.run(thread, capture_output=True, text=True, timeout=SECONDS, check=True).stderr
    shown = [re.sub(r"\d{4}-[\d:.,T -]+", "TIME ", text).strip() for text in (from_worker, from_thread)]
    assert shown[0] == shown[1]
    assert "ValueError: no" in shown[0]
    if form == "text":
        assert shown[0].startswith("TIME INFO mine.model: imported\nTIME WARNING mine.model: constructed")
        return
    lines = [json.loads(line) for line in from_worker.splitlines()]
    assert [(line["level"], line["stage"], line["replica"]) for line in lines[:2]] == [
        ("INFO", "s", 1),
        ("WARNING", "s", 1),
    ]
