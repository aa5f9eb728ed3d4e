"""What became of a query, as text: a sentence, and a waterfall of its time against its deadline."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

TRAVELLED, QUEUED, WAITED, EXECUTED, DEADLINE = "·░▒█|"
_LEAST_BAR: Final = 20
_COLUMNS: Final = ("arrived", "queued", "waited", "executed")


def lines(told: dict[str, Any], width: int) -> Iterator[str]:
    """The lines for what `spillway.agents.live.operator.inspection.describe` told."""
    yield f"{told['request_id']} of {told['pipeline']}: {told['text']}"
    if "sent_us" in told:
        yield "; ".join(_circumstances(told))
    for seen in told.get("seen", ()):
        done = ", ".join(_progress(reader, done) for reader, done in seen["done"].items())
        sender = f" from {seen['sent_by']}" if seen["sent_by"] else ""
        yield f"  {seen['at_ms']:+.1f} ms  {seen['topic']} {seen['partition']}/{seen['offset']}{sender}: {done}"
    if told.get("searched"):
        yield _searched(told)
    if told.get("stages"):
        yield from waterfall(told, width)


def _circumstances(told: dict[str, Any]) -> Iterator[str]:
    yield f"sent {when(told['sent_us'] / 1e6)} UTC, due after {told['deadline_ms']:g} ms"
    key = told["key"]
    yield f"partition {told['partition']}" + (f", key {key}" if key not in (None, told["request_id"]) else "")
    if told["trace_id"]:
        yield f"trace {told['trace_id']}"
    if told["path"]:
        yield "chose " + ", ".join(f"{chooser}={'+'.join(to) or 'none'}" for chooser, to in told["path"].items())
    if told.get("rests_on"):
        yield f"rests on {', '.join(told['rests_on'])}"


def _progress(reader: str, done: bool | None) -> str:  # noqa: FBT001 - one fact
    if done is None:
        return f"what {reader} has committed is unknown"
    return f"{reader} {'has' if done else 'has not'} committed beyond it"


def _searched(told: dict[str, Any]) -> str:
    since, seconds = told["searched"]["since"], told["searched"]["seconds"]
    oldest = told.get("oldest")
    kept = f"; the oldest outcome kept in partition {told['partition']} is of {when(oldest)} UTC" if oldest else ""
    where = "its key's partition" if since is None else f"{seconds:g} s from {when(since)} UTC"
    return f"searched {where}{kept}"


def waterfall(told: dict[str, Any], width: int) -> Iterator[str]:
    """A row for each stage, with its time from sending to the deadline, or to the outcome if that came later."""
    stages = told["stages"]
    last = max((_end(stage) for stage in stages if stage["arrived_ms"] is not None), default=0.0)
    total = max(told["deadline_ms"], told["latency_ms"], last, 1e-3)
    names = max(len(each) for each in ("outcome", *(stage["stage"] for stage in stages)))
    rows = [_cells(stage) for stage in stages]
    heads = [*_COLUMNS, "batch", "model"]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    bar = max(_LEAST_BAR, width - names - sum(widths) - 2 * len(widths) - 2)
    scale = f"{total:.0f} ms"
    yield _row("", "0" + scale.rjust(bar - 1), names, heads, widths)
    for stage, cells in zip(stages, rows, strict=True):
        yield _row(stage["stage"], _bar(stage, told["deadline_ms"], total, bar), names, cells, widths)
        if stage["flags"]:
            yield f"{'':{names}}  {_flags(stage['flags'])}"
    end = [" "] * bar
    end[_at(told["deadline_ms"], total, bar)] = DEADLINE
    end[_at(told["latency_ms"], total, bar)] = "*"
    yield f"{'outcome':{names}}  {''.join(end)}  {told['latency_ms']:.1f}"
    yield f"in ms; {TRAVELLED} travelled, {QUEUED} queued, {WAITED} waited, {EXECUTED} executed, {DEADLINE} deadline"


def _row(name: str, bar: str, names: int, cells: list[str], widths: list[int]) -> str:
    told = "  ".join(cell.rjust(width) for cell, width in zip(cells[:-1], widths[:-1], strict=True))
    return f"{name:{names}}  {bar}  {told}  {cells[-1]}".rstrip()


def _cells(stage: dict[str, Any]) -> list[str]:
    numbers = [stage[f"{name}_ms"] for name in _COLUMNS]
    model = f"{stage['model']} {stage['version']}".strip() if stage["batch"] else "not run"
    return [*("?" if number is None else f"{number:.1f}" for number in numbers), str(stage["batch"]), model]


def _bar(stage: dict[str, Any], deadline: float, total: float, width: int) -> str:
    cells = [" "] * width
    cells[_at(deadline, total, width)] = DEADLINE
    at = stage["arrived_ms"]
    if at is None:  # from a stage that did not say so yet
        return "".join(cells)
    for mark, start, spent in (
        (TRAVELLED, at - stage["travelled_ms"], stage["travelled_ms"]),
        (QUEUED, at, stage["queued_ms"]),
        (WAITED, at + stage["queued_ms"], stage["waited_ms"]),
        (EXECUTED, at + stage["queued_ms"] + stage["waited_ms"], stage["executed_ms"]),
    ):
        if spent > 0:
            first = _at(start, total, width)
            end = max(first + 1, _at(start + spent, total, width))
            cells[first:end] = mark * (end - first)
    return "".join(cells)


def _at(milliseconds: float, total: float, width: int) -> int:
    return min(width - 1, max(0, int(milliseconds / total * width)))


def _end(stage: dict[str, Any]) -> float:
    spent: float = stage["arrived_ms"] + stage["queued_ms"] + stage["waited_ms"] + stage["executed_ms"]
    return spent


def _flags(flags: dict[str, Any]) -> str:
    return ", ".join(f"{name} {json.dumps(value, ensure_ascii=False)}" for name, value in flags.items())


def when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
