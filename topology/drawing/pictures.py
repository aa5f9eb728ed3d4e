"""A pipeline drawn as text, for terminals, and as a graph in the DOT language of Graphviz."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from topology.drawing.lines import Node, draw_boxes, draw_lines, layers
from topology.quantities import show_duration
from topology.topics import egress, ingress

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from topology.load import Pipeline
    from topology.spec import StageSpec

_LINE: Final = 36  # characters of a long name that a box shows
_LEGEND: Final = "◇ sends a query only to those that it chooses, and ends it there where it chooses none"


def text(pipeline: Pipeline) -> str:
    rows = layers(*_boxes(pipeline))
    lines: list[str] = []
    for number, layer in enumerate(rows):
        lines += draw_boxes(layer)
        if number + 1 < len(rows):
            lines += draw_lines(layer, rows[number + 1])
    if any(pipeline.graph.is_chooser(name) for name in pipeline.graph.order):
        lines += ["", _LEGEND]
    return "\n".join(line.rstrip() for line in lines)


def dot(pipeline: Pipeline) -> str:
    spec, graph = pipeline.spec, pipeline.graph
    first, last = _quoted(ingress(spec.name)), _quoted(egress(spec.name))
    lines = [
        f"digraph {_quoted(spec.name)} {{",
        "  node [shape=box];",
        f"  {first} [shape=cds];",
        f"  {last} [shape=cds];",
    ]
    for name in graph.order:
        label = "\\n".join(_quoted(line)[1:-1] for line in _described(pipeline, spec.stage(name)))
        lines.append(f'  {_quoted(name)} [label="{label}"];')
    lines += [f"  {first} -> {_quoted(name)};" for name in graph.roots]
    for name in graph.order:
        dashed = " [style=dashed]" if graph.is_chooser(name) else ""
        lines += [f"  {_quoted(name)} -> {_quoted(successor)}{dashed};" for successor in graph.successors[name]]
        if graph.is_chooser(name):
            lines.append(f'  {_quoted(name)} -> {last} [style=dotted, label="none chosen"];')
    lines += [f"  {_quoted(name)} -> {last};" for name in graph.sinks]
    return "\n".join([*lines, "}"])


def _boxes(pipeline: Pipeline) -> tuple[list[Node], dict[str, Sequence[str]]]:
    spec, graph = pipeline.spec, pipeline.graph
    first, last = ingress(spec.name), egress(spec.name)
    boxes = [Node(first, (first,))]
    boxes += [Node(name, tuple(_described(pipeline, spec.stage(name))), graph.is_chooser(name)) for name in graph.order]
    gate: tuple[str, ...] = (last,)
    if len(graph.sinks) > 1:
        ways = {
            "all": f"when all {len(graph.sinks)} have answered",
            "any": f"when the first of {len(graph.sinks)} has answered",
        }
        gate = (last, ways[spec.sinks or "any"])
    boxes.append(Node(last, gate))
    before: dict[str, Sequence[str]] = {name: graph.predecessors[name] or (first,) for name in graph.order}
    return boxes, {first: (), **before, last: graph.sinks}


def _described(pipeline: Pipeline, stage: StageSpec) -> Iterable[str]:
    yield _short(stage.name)
    if stage.emulated is not None:
        profile = stage.emulated
        line = "a measured table"
        if profile.table is None:
            line = f"{show_duration(profile.alpha or 0)} + {show_duration(profile.beta or 0)} each"
        yield f"emulated: {line}"
    else:
        yield _short(stage.model or "")
    if pipeline.graph.is_join(stage.name):
        count = len(stage.after)
        mode = "all" if stage.join is None else stage.join.mode
        partial = mode == "all" and stage.join is not None and stage.join.on_loss == "partial"
        waits = "what comes" if partial else "all" if mode == "all" else "the first"
        yield f"joins {waits} of {count}"
    if stage.choose is not None:
        yield _short(f"chooses by {stage.choose}")
    upper = f" (max {stage.max_batch})" if stage.batch_size < stage.max_batch else ""
    delay = f", waits {show_duration(stage.batch_delay)}" if stage.batch_delay else ""
    yield f"batch {stage.batch_size}{upper}{delay}"
    if stage.stateful:
        yield f"{stage.state} state, {stage.replication}"
        yield f"{_count(stage.shards, 'shard')} x {_count(stage.members, 'member')}, {stage.device}"
        return
    standby = f" + {_count(stage.standby, 'standby')}" if stage.standby else ""
    yield f"{_count(stage.replicas, 'replica')} x {_count(stage.instances, 'instance')}{standby}, {stage.device}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _short(name: str) -> str:
    half = _LINE // 2
    return name if len(name) <= _LINE else f"{name[: half - 1]}…{name[-half:]}"


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)
