"""How versions of states look to people and to programs."""

import json

import numpy as np
import pytest

from spillway.agents.cli.state_telling import (
    Grid,
    contents_facts,
    counted,
    difference_facts,
    key_facts,
    size,
    tell_differences,
    tell_version,
    warn_of_replays,
    when,
)
from spillway.agents.live.operator.histories import Kept, Standing
from spillway.checkpoint.differences import between, between_keys
from spillway.checkpoint.small_values import pack
from spillway.lineage.marks import INITIAL, Version
from spillway.lineage.replication import Batch, Contents, Entry, InputPlace, Manifest, Record
from spillway.topology.sections import StateSpec
from spillway.topology.spec import StageSpec


def test_a_grid_is_aligned_columns_where_nobody_watches(capsys):
    Grid("two rows", ("name", "bytes"), [("a[0]", "7"), ("long name", "1234")], (1,)).show()
    assert capsys.readouterr().out == "two rows\n  name       bytes\n  a[0]           7\n  long name   1234\n"


def test_a_grid_is_a_table_on_a_terminal_and_no_cell_is_taken_for_markup(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    Grid("a title", ("name", "standing"), [("[red]x", "durable")]).show()
    out = capsys.readouterr().out
    assert "[red]x" in out
    assert "\x1b[32mdurable" in out


def test_a_grid_without_rows_is_its_title(capsys):
    Grid("nothing there yet", ("name",), []).show()
    assert capsys.readouterr().out == "nothing there yet\n"


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1_500, "1.5 kB"), (13e6, "13.0 MB"), (2.5e9, "2.5 GB")]
)
def test_sizes(count, text):
    assert size(int(count)) == text


def test_moments_and_counts():
    assert when(0) == "-"
    assert len(when(1_700_000_000_000_000)) == len("2023-11-14 22:13:20")
    assert (counted(1, "key", "keys"), counted(0, "key", "keys")) == ("1 key", "0 keys")


def version(contents):
    manifest = Manifest(Version(1, 9), ((1, INITIAL),), claimant="m", batches=len(contents.batches))
    return Kept(("learn", 0), manifest, Standing.OPEN), contents


BATCHES = tuple(
    Batch(n, tuple(Record(f"r{n}.{each}", 0, each) for each in range(10)), dropped=(Record("d", 1, 5),))
    for n in range(1, 8)
)


def test_only_the_first_batches_and_records_are_told_unless_all_are_asked_for(capsys):
    contents = Contents(batches=BATCHES, inputs=(InputPlace(3, 8),))
    tell_version(*version(contents), None, everything=False)
    out = capsys.readouterr().out
    assert "input 3   covered below offset 8\n" in out
    assert "v1 took 10: r1.0 (0:0), " in out
    assert "r1.7 (0:7) and 2 more\n" in out
    assert "v5 dropped 1: d (1:5)" in out
    assert "and 2 more; --all shows them" in out
    tell_version(*version(contents), None, everything=True)
    out = capsys.readouterr().out
    assert "r7.9 (0:9)\n" in out
    assert "more" not in out


def test_a_version_whose_keys_nobody_could_count_says_so(capsys):
    tell_version(*version(Contents(pages=(3, 4))), None, everything=False)
    assert "an unknown number of keys on 2 pages, 7 B" in capsys.readouterr().out


def test_values_that_json_lacks_are_texts():
    kept = {
        "nan": float("nan"),
        "raw": b"\x01",
        "list": [float("inf"), (1 << 70,)],
        "map": {"a": b"\x02"},
        "by": {3: 4},
    }
    entries = tuple(Entry(name, "value", "", ()) for name in kept)
    values = {name: pack(value)[0] for name, value in kept.items()}
    facts = contents_facts(Contents(entries, values), None)
    assert [entry["value"] for entry in json.loads(json.dumps(facts))["entries"]] == [
        "nan",
        "01",
        ["inf", [1 << 70]],
        {"a": "02"},
        {"3": 4},
    ]


def test_differences_are_facts_and_lines(capsys):
    before = {"w": np.zeros(3), "form": np.zeros(2), "gone": 1, "nan": np.zeros(1), "at": (1,)}
    after = {"w": np.array([0, 0, 2.5]), "form": np.zeros(3, np.float32), "nan": np.array([np.nan]), "at": (1, 2)}
    found = between(before, after)
    facts = json.loads(json.dumps([difference_facts(each) for each in found], allow_nan=False))
    assert [(fact["what"], fact["largest"]) for fact in facts] == [
        ("changed", 2.5),
        ("retyped", None),
        ("removed", None),
        ("changed", None),
        ("changed", None),
    ]
    assert facts[-1]["values"] == [[1], [1, 2]]
    tell_differences("learn/0", "e1.v1 -> e1.v2", found, None)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "learn/0, e1.v1 -> e1.v2: 5 entries differ"
    assert lines[2:] == [
        "w changed 1 of 3 2.5",
        "form retyped - numpy float64 [2] -> numpy float32 [3]",
        "gone removed - -",
        "nan changed 1 of 1 not finite",
        "at changed - (1,) -> (1, 2)",
    ]


def test_of_many_keys_the_first_are_told(capsys):
    keys = between_keys({f"k{n:02}": {"n": n} for n in range(12)}, {f"k{n:02}": {"n": n + 1} for n in range(12)})
    assert len(json.loads(json.dumps(key_facts(keys)))["changed"]) == 12
    tell_differences("track/1", "e1.v1 -> e1.v2", (), keys)
    out = capsys.readouterr().out
    assert "0 added, 0 removed, 12 changed, 0 the same" in out
    assert "key k09" in out
    assert "key k10" not in out
    assert "and 2 more keys; --json has all" in out


def test_where_batches_are_replayed_it_is_said(capsys):
    warn_of_replays(StageSpec(name="a", model="m:M", state=StateSpec(kind="shared")))
    assert capsys.readouterr().err == ""
    warn_of_replays(StageSpec(name="a", model="m:M", state=StateSpec(kind="shared", replication="lineage-stash")))
    assert "copies its state every 150 requests" in capsys.readouterr().err
