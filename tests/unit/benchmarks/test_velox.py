"""`python -m benchmarks velox`, small: its tables, and what of them holds whatever the machine does."""

from concurrent.futures import Future

import pytest

from benchmarks.__main__ import benchmarks
from benchmarks.steady import Steady
from benchmarks.velox import decided, latency, learned
from spillway.agents.cli.main import run
from spillway.lineage.errors import SpillwayError


def rows(text):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]


@pytest.mark.nightly
def test_all_sections_are_told_and_what_is_learned_is_as_the_thesis_says(monkeypatch, capsys):
    monkeypatch.setattr(latency, "DIMENSIONS", (16,))
    monkeypatch.setattr(latency, "SETS", (20, 40))
    monkeypatch.setattr(latency, "CATALOGUE", 100)
    monkeypatch.setattr(learned, "USERS", 200)
    monkeypatch.setattr(learned, "ITEMS", 200)
    monkeypatch.setattr(learned, "WORLDS", ((200, 80), (200, 100)))
    monkeypatch.setattr(decided, "CALM", 5_000)
    options = ["--repeats", "2", "--seeds", "2", "--rounds", "40"]
    code, (said, errors) = run(["velox", *options], benchmarks, "benchmarks"), capsys.readouterr()
    assert code == 0, errors
    updates, topk, hybrid, fresh, bandits, switches, rises = map(rows, said.split("\n**"))
    assert [row[0] for row in updates[2:]] == ["16"]
    assert len(topk) == 2 + 12
    for row in hybrid[2:]:
        before, online, retrained, prior = map(float, row[2:6])
        assert retrained < online < before
        assert prior < online or int(row[1].split()[0]) < 40  # of so few, features know their own ratings too well
    zero, mean = ([float(cell.split()[0]) for cell in row[1:7]] for row in fresh[2:])
    assert all(better < worse for better, worse in zip(mean, zero, strict=True))
    assert len(bandits) == 2 + 12
    assert [row[0] for row in switches[2:]] == ["100 x 40"] * 3 + ["12 x 40"] * 3
    assert [row[:3] for row in rises[2:]] == [[kind, "0", "0"] for kind in decided.KINDS]


def answered(number):
    way = Future()
    way.set_result(number)
    return way


def test_a_steady_load_sends_each_when_it_is_due_and_tells_who_got_no_answer():
    sent = Steady(1e5, answered, 1e-4).whole()
    assert [each.outcome for each in sent] == list(range(len(sent)))
    assert [round(1e5 * (each.due - sent[0].due)) for each in sent] == list(range(10))
    assert all(each.took >= 0 for each in sent)

    def lost(_number):
        way = Future()
        way.set_exception(SpillwayError("no answer"))
        return way

    def refused(_number):
        raise SpillwayError("no broker")

    for send, words in ((lost, "no answer"), (refused, "no broker")):
        with pytest.raises(SpillwayError, match=words):
            Steady(1e5, send, 1e-4).whole()
