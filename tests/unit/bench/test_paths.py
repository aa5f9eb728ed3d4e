"""`spillway bench paths`: the pipelines that it compares, and its cells."""

from __future__ import annotations

import json

import pytest

from agents.bench.paths import MIXES, Setting, da, measure
from agents.cli.main import run


def test_one_branch_or_the_other_is_chosen_and_pose_may_be_made_slower():
    static, forked = da(1.0, chooses=False), da(2.0, chooses=True)
    assert not static.graph.is_chooser("person")
    assert forked.graph.is_chooser("person")
    assert forked.durations["pose"](6) == pytest.approx(2 * static.durations["pose"](6))
    assert forked.durations["face"](6) == static.durations["face"](6)
    assert [stage.batch for stage in forked.spec.stages] == [stage.batch for stage in static.spec.stages]


def test_classes_that_tell_all_are_as_good_as_the_truth():
    setting = Setting("pard", "tweet-like", 60, 0, 2.0)
    told = [measure(setting, MIXES[-1], way) for way in ("max", "predicted", "oracle")]
    assert told[1][0] == pytest.approx(told[2][0], abs=0.002)
    assert all(0 <= rate < 0.2 for pair in told for rate in pair)


def test_the_command_tells_its_cells(capsys):
    arguments = ("--seconds", "10", "--seeds", "1", "--apart", "1", "--trace", "tweet-like", "--policy", "pard")
    assert run(["bench", "paths", *arguments, "--json"]) == 0
    (cell,) = json.loads(capsys.readouterr().out)["cells"]
    assert set(cell["mixes"]) == {mix.name for mix in MIXES}
    assert set(cell["mixes"]["half and half"]) == {"max", "predicted", "oracle"}
