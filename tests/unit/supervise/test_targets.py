"""The file that tells Prometheus where a pipeline's processes are."""

import json
import os
import time

from agents.live.registry import Address, Entry
from agents.supervise.registry import ServeEntry, entries
from agents.supervise.service import EVERY_SECONDS, Targets, targets_path


def test_it_names_every_process_and_follows_changes(tmp_path):
    served = ServeEntry("p", "p.yaml", "b:1", None, os.getpid(), time.time(), port=9400)
    served.write(tmp_path)
    Entry(tmp_path, "p", "greet", 0, role="stage", address=Address("0.0.0.0", 9401))
    targets = Targets(tmp_path, "p")
    targets.keep(0.0)
    file = targets_path(tmp_path, "p")
    assert json.loads(file.read_text()) == [
        {"targets": ["127.0.0.1:9400"], "labels": {"pipeline": "p", "place": "supervisor"}},
        {"targets": ["127.0.0.1:9401"], "labels": {"pipeline": "p", "place": "greet.0"}},
    ]
    file.unlink()
    targets.keep(EVERY_SECONDS)
    assert not file.exists(), "nothing has changed"
    Entry(tmp_path, "p", "greet", 0, role="stage", address=Address("10.0.0.1", 9500))
    targets.keep(EVERY_SECONDS * 1.5)
    assert not file.exists(), "it is not looked at all the time"
    targets.keep(EVERY_SECONDS * 2)
    assert json.loads(file.read_text())[1]["targets"] == ["10.0.0.1:9500"]
    assert [entry.name for entry in entries(tmp_path, "p")] == ["greet.0"]
