"""How versions of states look to people and to programs."""

import json

import pytest

from spillway.agents.cli.state_telling import (
    Grid,
    contents_facts,
    counted,
    size,
    warn_of_replays,
    when,
)
from spillway.checkpoint.small_values import pack
from spillway.lineage.replication import Contents, Entry
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
    facts = contents_facts(Contents(entries, values))
    assert [entry["value"] for entry in json.loads(json.dumps(facts))["entries"]] == [
        "nan",
        "01",
        ["inf", [1 << 70]],
        {"a": "02"},
        {"3": 4},
    ]


def test_where_batches_are_replayed_it_is_said(capsys):
    warn_of_replays(StageSpec(name="a", model="m:M", state=StateSpec(kind="shared")))
    assert capsys.readouterr().err == ""
    warn_of_replays(StageSpec(name="a", model="m:M", state=StateSpec(kind="shared", replication="lineage-stash")))
    assert "copies its state every 150 requests" in capsys.readouterr().err
