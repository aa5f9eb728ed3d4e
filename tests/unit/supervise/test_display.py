"""What `spillway serve` shows on a terminal."""

from functools import partial
from io import StringIO

from rich.console import Console

from agents.supervise import table
from agents.supervise.table import Row


def test_an_event_is_printed_as_it_is_and_the_table_below_without_its_markup(monkeypatch):
    shown = StringIO()
    monkeypatch.setattr(table, "Console", partial(Console, file=shown, force_terminal=True, width=200))
    with table.Display("greet", quiet=False) as made:
        made.show([Row("greet.0", "running", None)])
        made.say("[greet] is ready")
    assert "[greet] is ready" in shown.getvalue()
    assert "running" in shown.getvalue()
    assert "[green]" not in shown.getvalue()
