"""What has to fit together in a pipeline: names, edges, joins, ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.lineage.headers import MAX_PATH_BYTES
from spillway.topology import dag, names
from spillway.topology.problems import Problem
from spillway.topology.rules.stage_rules import check_limits, check_stage

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping

    from spillway.topology.problems import Path
    from spillway.topology.reading.fields import PipelineFields, StageFields

    Stages = Mapping[str, StageFields]
    Edges = Mapping[str, tuple[str, ...]]


# Whether every message knows the choices that bear on it: what lets joins and the gate know whom to wait for.
#
# A join works out its expected predecessors from the choices that a message carries (`spillway.topology.routing`). So
# every message that arrives there must have passed every chooser that has a say in who else arrives: for a chooser S
# before a join D, each predecessor of D must be S or come after it. It follows that S lies on every way to D, so that
# all messages of a request agree. The gate joins the terminals: the sinks, and the choosers at which a request may end.
# Two terminals that can both report for one request must know the same choices: of a chooser and any terminal, one
# must come after the other.


def unknown_choices(edges: Edges, choosers: Iterable[str]) -> Iterator[tuple[str, str | None, str]]:
    """Find choices that somebody cannot know: who chooses, the join that waits (None: the gate), and who cannot know.

    `edges` are predecessors without a cycle; `choosers` have successors.
    """
    successors = dag.reverse(edges)
    # A chooser is behind itself here: what it sends knows what it chose.
    behind = {name: dag.reach([name], successors) for name in choosers}
    for name, after in behind.items():
        for join, before in edges.items():
            if join != name and len(before) > 1 and join in after:
                yield from ((name, join, other) for other in before if other not in after)
    terminals = [name for name in edges if not successors[name] or name in behind]
    for name, after in behind.items():
        others = (other for other in terminals if other not in after and name not in behind.get(other, ()))
        yield from ((name, None, other) for other in others)


def check_choices(stages: Stages, edges: Edges) -> Iterator[Problem]:
    """Find conditional edges that a join, or the gate, cannot complete; `edges` are predecessors without a cycle."""
    successors = dag.reverse(edges)
    at_end = set()
    choosers = [name for name, stage in stages.items() if successors[name] and stage.spec.choose is not None]
    for name, join, other in unknown_choices(edges, choosers):
        if join is not None:
            text = (
                f"this join cannot complete: {name!r} chooses which stages lead to {join!r}, but {other!r} does not "
                f"come after it, so a message from {other!r} cannot say which other messages to wait for; put "
                f"{other!r} after {name!r}, or join without the stages that {name!r} chooses"
            )
            yield Problem(_named_at(stages[join], other), text)
        elif name not in at_end:
            at_end.add(name)
            text = (
                f"{name!r} chooses, but a request can also end at {other!r}, which comes neither before nor after "
                f"it: {other!r} cannot know what {name!r} chose, so the gate cannot tell when a request is "
                f"complete; join both branches in one last stage, or put {other!r} after {name!r}"
            )
            yield Problem(stages[name].path("choose"), text)
    yield from _check_headers(stages, edges, successors)


def _named_at(stage: StageFields, before: str) -> Path:
    return next(path for path, name in stage.predecessors() if name == before)


def _check_headers(stages: Stages, edges: Edges, successors: Edges) -> Iterator[Problem]:
    choosers = [name for name, stage in stages.items() if stage.spec.choose is not None]
    lists = {
        "all choices of a request": sum(_length((name, *successors[name])) for name in choosers),
        "the names of all sinks": _length(name for name in stages if not successors[name]),
        **{f"the predecessors of {name!r}": _length(before) for name, before in edges.items()},
    }
    for what, length in lists.items():
        if length > MAX_PATH_BYTES:
            text = f"{what} may take {length} bytes in a header, over the limit of {MAX_PATH_BYTES}; use shorter names"
            yield Problem(("stages",), text, on_key=True)


def _length(found: Iterable[str]) -> int:
    return sum(len(name) + 1 for name in found)


def check_structure(fields: PipelineFields) -> Iterator[Problem]:
    """Check what `fields` could be read of a pipeline; what a bad field bears on is not judged."""
    for stage in fields.stages:
        yield from check_stage(fields, stage)
    if not (yield from check_limits(fields)):
        return
    stages: dict[str, StageFields] = {}
    for stage in fields.stages:
        if stage.name is not None and stages.setdefault(stage.name, stage) is not stage:
            text = f"an earlier stage is also called {stage.name!r}; give each stage its own name"
            yield Problem(stage.path("name"), text)
    yield from _check_topics(fields, stages)
    edges, certain = yield from _edges(fields, stages)
    acyclic = yield from _check_cycles(stages, edges)
    if not certain:  # with an edge missing, what follows would name its consequences
        return
    yield from _check_joins(stages)
    yield from _check_ends(stages, edges)
    if acyclic:
        yield from _check_sinks(fields, stages, edges)
        yield from check_choices(stages, edges)


def _check_topics(fields: PipelineFields, stages: Stages) -> Iterator[Problem]:
    """Topics that are too long, and topics that Kafka's metrics cannot tell apart, as they write '.' as '_'."""
    for name, stage in stages.items():
        longest = f"{fields.head.name}.{name}.{max(names.STAGE_SUFFIXES, key=len)}"
        if fields.usable("name") and len(longest) > names.MAX_TOPIC:
            over = len(longest) - names.MAX_TOPIC
            text = (
                f"topics of this stage would have {len(longest)} characters; shorten its name, or the pipeline's, by "
            )
            yield Problem(stage.path("name"), f"{text}{over}: Kafka allows {names.MAX_TOPIC}")
        base, _, suffix = name.rpartition("_")
        if suffix in names.STAGE_SUFFIXES and base in stages:
            text = (
                f"in Kafka's metrics, where '.' is written '_', its topic would be confused with {base}.{suffix}, a "
                f"topic of stage {base!r}; rename one of the two"
            )
            yield Problem(stage.path("name"), text)


def _edges(fields: PipelineFields, stages: Stages) -> Generator[Problem, None, tuple[dict[str, tuple[str, ...]], bool]]:
    certain = len(stages) == len(fields.stages)
    edges = {}
    misnamed = [stage.called for stage in fields.stages if stage.name is None]
    for stage in fields.stages:
        certain = certain and stage.usable("after")
        before: dict[str, None] = {}
        for path, name in stage.predecessors():
            if name not in stages:
                certain = False
                if name not in misnamed:
                    yield Problem(path, f"there is no stage {name!r:.80}; {names.meant(name, stages)}")
            elif name in before:
                yield Problem(path, f"{name!r} is named twice; keep one")
            before[name] = None
        if stage.name is not None and stages[stage.name] is stage:
            edges[stage.name] = tuple(name for name in before if name in stages)
    return edges, certain


def _check_cycles(stages: Stages, edges: Edges) -> Generator[Problem, None, bool]:
    """Find cycles, and the stages that can be reached only through one; whether there is none."""
    found = dag.cycles(edges)
    knotted: set[str] = set()
    for cycle in found:
        way = " -> ".join((*cycle, cycle[0]))
        text = (
            f"the stages form a cycle, {way}; take one of them out of another's 'after' (if a client sends results "
            "back in, that is a new query, not an edge)"
        )
        if len(cycle) == 1:
            text = f"stage {cycle[0]!r} comes after itself; take it out"
        yield Problem(_named_at(stages[cycle[0]], cycle[-1]), text)
        knotted |= dag.reach(cycle, edges) & dag.reach(cycle, dag.reverse(edges))
    if found:
        reached = dag.reach([name for name in edges if not edges[name]], dag.reverse(edges))
        for name in edges:
            if name not in reached and name not in knotted:
                text = "cannot be reached from the ingress: every path to it leads through a cycle; remove the cycle"
                yield Problem(stages[name].path("after"), text)
    return not found


def _check_joins(stages: Stages) -> Iterator[Problem]:
    for stage in stages.values():
        if stage.spec.join is None or not stage.usable("join", "after") or len(stage.spec.after) > 1:
            continue
        if stage.spec.after:
            text = (
                f"there is nothing to join: only {stage.spec.after[0]!r} comes before; drop 'join', or add to 'after'"
            )
        else:
            text = "there is nothing to join: no stage comes before; drop 'join', or name the stages in 'after'"
        yield Problem(stage.path("join"), text, on_key=True)


def _check_ends(stages: Stages, edges: Edges) -> Iterator[Problem]:
    successors = dag.reverse(edges)
    for name, stage in stages.items():
        behind = successors[name]
        for field in ("choose", "split"):
            if getattr(stage.spec, field) is not None and not behind:
                text = f"no stage comes after {name!r}, so there is nothing to {field}; drop it"
                yield Problem(stage.path(field), text, on_key=True)


def _check_sinks(fields: PipelineFields, stages: Stages, edges: Edges) -> Iterator[Problem]:
    successors = dag.reverse(edges)
    sinks = [name for name in stages if not successors[name]]
    if len(sinks) > 1 and fields.head.sinks is None and fields.usable("sinks"):
        text = (
            f"there are several sinks ({', '.join(sinks)}): write 'sinks: all' if a query is answered when all of "
            "them have answered, or 'sinks: any' if the first answer counts"
        )
        yield Problem(stages[sinks[1]].path("name"), text)
