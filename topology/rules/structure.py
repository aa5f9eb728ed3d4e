"""What has to fit together in a pipeline: names, edges, joins, ends. Each rule adds what it finds to `problems`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topology import dag, names
from topology.problems import Problem
from topology.rules.choices import check_choices
from topology.rules.stage_rules import check_limits, check_stage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topology.reading.fields import PipelineFields, StageFields

    Stages = Mapping[str, StageFields]
    Edges = Mapping[str, tuple[str, ...]]


def check_structure(fields: PipelineFields, problems: list[Problem]) -> None:
    """Check what `fields` could be read of a pipeline; what a bad field bears on is not judged."""
    for stage in fields.stages:
        check_stage(fields, stage, problems)
    if not check_limits(fields, problems):
        return
    stages = _by_name(fields, problems)
    _check_topics(fields, stages, problems)
    edges, certain = _edges(fields, stages, problems)
    acyclic = _check_cycles(stages, edges, problems)
    if not certain:  # with an edge missing, what follows would name its consequences
        return
    _check_joins(stages, problems)
    _check_ends(stages, edges, problems)
    if acyclic:
        _check_sinks(fields, stages, edges, problems)
        check_choices(stages, edges, problems)


def _by_name(fields: PipelineFields, problems: list[Problem]) -> dict[str, StageFields]:
    stages: dict[str, StageFields] = {}
    for stage in fields.stages:
        if stage.name is None:
            continue
        first = stages.setdefault(stage.name, stage)
        if first is not stage:
            text = f"an earlier stage is called {stage.name!r} too; give each stage a name of its own"
            problems.append(Problem(stage.path("name"), text))
    return stages


def _check_topics(fields: PipelineFields, stages: Stages, problems: list[Problem]) -> None:
    """Topics that are too long, and topics that Kafka's metrics cannot tell apart, as they write '.' as '_'."""
    for name, stage in stages.items():
        longest = f"{fields.head.name}.{name}.{max(names.STAGE_SUFFIXES, key=len)}"
        if fields.usable("name") and len(longest) > names.MAX_TOPIC:
            over = len(longest) - names.MAX_TOPIC
            text = (
                f"topics of this stage would have {len(longest)} characters; shorten its name, or the pipeline's, by "
            )
            problems.append(Problem(stage.path("name"), f"{text}{over}: Kafka allows {names.MAX_TOPIC}"))
        base, _, suffix = name.rpartition("_")
        if suffix in names.STAGE_SUFFIXES and base in stages:
            text = (
                f"in Kafka's metrics, where '.' is written '_', its topic would be taken for {base}.{suffix}, a topic "
                f"of stage {base!r}; rename one of the two"
            )
            problems.append(Problem(stage.path("name"), text))


def _edges(fields: PipelineFields, stages: Stages, problems: list[Problem]) -> tuple[dict[str, tuple[str, ...]], bool]:
    certain = len(stages) == len(fields.stages)
    edges = {}
    for stage in fields.stages:
        certain = certain and stage.usable("after")
        before: dict[str, None] = {}
        for path, name in stage.predecessors():
            if name not in stages:
                certain = False
                problems.append(Problem(path, f"there is no stage {name!r:.80}; {names.meant(name, stages)}"))
            elif name in before:
                problems.append(Problem(path, f"{name!r} is named twice; keep one"))
            before[name] = None
        if stage.name is not None and stages[stage.name] is stage:
            edges[stage.name] = tuple(name for name in before if name in stages)
    return edges, certain


def _check_cycles(stages: Stages, edges: Edges, problems: list[Problem]) -> bool:
    """Cycles, and the stages that can be reached only through one."""
    found = dag.cycles(edges)
    knotted: set[str] = set()
    for cycle in found:
        way = " -> ".join((*cycle, cycle[0]))
        text = (
            f"the stages form a cycle, {way}; take one of them out of another's 'after' (what comes round through the "
            "client is a new query of the client's, not an edge)"
        )
        if len(cycle) == 1:
            text = f"stage {cycle[0]!r} comes after itself; take it out"
        position = edges[cycle[0]].index(cycle[-1])
        problems.append(Problem(stages[cycle[0]].path("after", position), text))
        knotted |= dag.reach(cycle, edges) & dag.reach(cycle, dag.reverse(edges))
    if found:
        reached = dag.reach([name for name in edges if not edges[name]], dag.reverse(edges))
        for name in edges:
            if name not in reached and name not in knotted:
                text = "cannot be reached from the ingress: every way to it leads through a cycle; resolve the cycle"
                problems.append(Problem(stages[name].path("after"), text))
    return not found


def _check_joins(stages: Stages, problems: list[Problem]) -> None:
    for stage in stages.values():
        if stage.spec.join is None or not stage.usable("join", "after") or len(stage.spec.after) > 1:
            continue
        if stage.spec.after:
            text = (
                f"there is nothing to join: only {stage.spec.after[0]!r} comes before; drop 'join', or add to 'after'"
            )
        else:
            text = "there is nothing to join: no stage comes before; drop 'join', or name the stages in 'after'"
        problems.append(Problem(stage.path("join"), text, on_key=True))


def _check_ends(stages: Stages, edges: Edges, problems: list[Problem]) -> None:
    successors = dag.reverse(edges)
    for name, stage in stages.items():
        behind = successors[name]
        for field in ("choose", "split"):
            if getattr(stage.spec, field) is not None and not behind:
                text = f"no stage comes after {name!r}, so there is nothing to {field}; drop it"
                problems.append(Problem(stage.path(field), text, on_key=True))
        if stage.spec.sink is True and behind:
            text = (
                f"{name!r} is not a sink: {_listed(behind)} comes after it; drop 'sink: true', or take {name!r} out of "
                "that 'after'"
            )
            problems.append(Problem(stage.path("sink"), text))
        if stage.spec.sink is False and not behind:
            text = (
                f"{name!r} is a sink: no stage comes after it; name it in some stage's 'after', or drop 'sink: false'"
            )
            problems.append(Problem(stage.path("sink"), text))


def _check_sinks(fields: PipelineFields, stages: Stages, edges: Edges, problems: list[Problem]) -> None:
    successors = dag.reverse(edges)
    sinks = [name for name in stages if not successors[name]]
    if len(sinks) > 1 and fields.head.sinks is None and fields.usable("sinks"):
        text = (
            f"there are several sinks ({', '.join(sinks)}): say 'sinks: all' if a query is answered when all of them "
            "have answered, 'sinks: any' if the first of them answers it"
        )
        problems.append(Problem(stages[sinks[1]].path("name"), text))


def _listed(found: tuple[str, ...]) -> str:
    return " and ".join(repr(name) for name in found)
