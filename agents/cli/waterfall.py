"""What became of a query, as text: a sentence, and a waterfall of its time against its deadline."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

TRAVELLED, QUEUED, WAITED, EXECUTED, DEADLINE = "·░▒█|"
_LEAST_BAR: Final = 20
_SPENT: Final = ("arrived", "queued", "waited", "executed")


def lines(told: dict[str, Any], width: int) -> Iterator[str]:
    """The lines for what `spillway.agents.live.operator.inspection.describe` told."""
    yield f"{told['request_id']} of {told['pipeline']}: {told['text']}"
    if "sent_us" in told:
        key = "" if told["key"] in (None, told["request_id"]) else f", key {told['key']}"
        sent = f"sent {_when(told['sent_us'] / 1e6)}, due after {told['deadline_ms']:g} ms"
        yield f"{sent}; partition {told['partition']}{key}; trace {told['trace_id'] or 'unknown'}"
    for seen in told.get("seen", ()):
        done = {True: "has", False: "has not", None: "may have"}
        said = ", ".join(f"{reader} {done[each]} committed beyond it" for reader, each in seen["done"].items())
        yield f"  {seen['at_ms']:+.1f} ms  {seen['topic']} {seen['partition']}/{seen['offset']}: {said}"
    if "searched" in told and (since := told["searched"]["since"]) is not None:
        yield f"searched {told['searched']['seconds']:g} s from {_when(since)} on"
    if told.get("oldest"):
        yield f"the oldest outcome kept in partition {told['partition']} is of {_when(told['oldest'])}"
    if told.get("stages"):
        yield from _waterfall(told, width)


def _waterfall(told: dict[str, Any], width: int) -> Iterator[str]:
    """A row for each stage, with its time from sending to the deadline, or to the outcome if that came later."""
    stages = told["stages"]
    heads, rows = [*_SPENT, "batch", "model"], [_cells(stage) for stage in stages]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    names = max(len(each) for each in ("outcome", *(stage["stage"] for stage in stages)))
    scale = _Scale(told, max(_LEAST_BAR, width - names - sum(widths) - 2 * len(widths) - 2))
    yield _line("", "0" + f"{scale.total:.0f} ms".rjust(scale.width - 1), names, heads, widths)
    for stage, cells in zip(stages, rows, strict=True):
        yield _line(stage["stage"], scale.bar(stage), names, cells, widths)
        if stage["flags"]:
            flags = (f"{name} {json.dumps(value, ensure_ascii=False)}" for name, value in stage["flags"].items())
            yield f"{'':{names}}  {', '.join(flags)}"
    outcome = scale.empty()
    outcome[scale.at(told["latency_ms"])] = "*"
    yield f"{'outcome':{names}}  {''.join(outcome)}  {told['latency_ms']:.1f}"
    yield f"in ms; {TRAVELLED} travelled, {QUEUED} queued, {WAITED} waited, {EXECUTED} executed, {DEADLINE} deadline"


def _line(name: str, bar: str, names: int, cells: list[str], widths: list[int]) -> str:
    told = "  ".join(cell.rjust(width) for cell, width in zip(cells[:-1], widths[:-1], strict=True))
    return f"{name:{names}}  {bar}  {told}  {cells[-1]}".rstrip()


def _cells(stage: dict[str, Any]) -> list[str]:
    numbers = [stage[f"{name}_ms"] for name in _SPENT]
    model = f"{stage['model']} {stage['version']}".strip() if stage["batch"] else "not run"
    return [*("?" if number is None else f"{number:.1f}" for number in numbers), str(stage["batch"]), model]


class _Scale:
    """From milliseconds to the cells of a bar that is `width` of them wide."""

    def __init__(self, told: dict[str, Any], width: int) -> None:
        self.total = max(told["deadline_ms"], told["latency_ms"], 1e-3)
        self.width = width
        self._deadline = self.at(told["deadline_ms"])

    def at(self, milliseconds: float) -> int:
        return min(self.width - 1, max(0, int(milliseconds / self.total * self.width)))

    def empty(self) -> list[str]:
        return [DEADLINE if cell == self._deadline else " " for cell in range(self.width)]

    def bar(self, stage: dict[str, Any]) -> str:
        cells = self.empty()
        if stage["arrived_ms"] is None:  # from a stage that did not say so yet
            return "".join(cells)
        at = stage["arrived_ms"] - stage["travelled_ms"]
        for mark, spent in zip((TRAVELLED, QUEUED, WAITED, EXECUTED), ("travelled", *_SPENT[1:]), strict=True):
            if stage[f"{spent}_ms"] > 0:
                first = self.at(at)
                end = max(first + 1, self.at(at + stage[f"{spent}_ms"]))
                cells[first:end] = mark * (end - first)
            at += stage[f"{spent}_ms"]
        return "".join(cells)


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"
