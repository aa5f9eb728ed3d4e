"""Whether every message knows the choices that bear on it: what lets joins and the gate know whom to wait for.

A join works out its expected predecessors from the choices that a message carries (`topology.routing`). So every
message that arrives there must have passed every chooser that has a say in who else arrives: for a chooser S before a
join D, each predecessor of D must be S or come after it. It follows that S lies on every way to D, so that all
messages of a request agree. The gate joins the terminals: the sinks, and the choosers at which a request may end. Two
terminals that can both report for one request must know the same choices: of a chooser and any terminal, one must
come after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lineage.headers import MAX_PATH_BYTES
from topology import dag
from topology.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from topology.reading.fields import StageFields

    Stages = Mapping[str, StageFields]
    Edges = Mapping[str, tuple[str, ...]]


def check_choices(stages: Stages, edges: Edges, problems: list[Problem]) -> None:
    """Add the conditional edges that a join, or the gate, cannot complete; `edges` are predecessors without a cycle."""
    successors = dag.reverse(edges)
    choosers = [name for name, stage in stages.items() if successors[name] and stage.spec.choose is not None]
    # A chooser is behind itself here: what it sends knows what it chose.
    behind = {name: dag.reach([name], successors) for name in choosers}
    for name in choosers:
        for join in stages:
            if join != name and len(edges[join]) > 1 and join in behind[name]:
                _check_join(stages[join], name, behind[name], problems)
    terminals = [name for name in stages if not successors[name] or name in behind]
    for name in choosers:
        beside = [other for other in terminals if other not in behind[name] and name not in behind.get(other, ())]
        if beside:
            text = (
                f"{name!r} chooses, but a request can also end at {beside[0]!r}, which comes neither before nor after "
                f"it: whoever reports from there cannot know what {name!r} chose, so nobody can tell when all have "
                f"reported; join both branches in one last stage, or let {beside[0]!r} come after {name!r}"
            )
            problems.append(Problem(stages[name].path("choose"), text))
    _check_headers(stages, edges, successors, problems)


def _check_join(join: StageFields, chooser: str, behind: set[str], problems: list[Problem]) -> None:
    for path, name in join.predecessors():
        if name not in behind:
            text = (
                f"no join can complete this: {chooser!r} chooses who goes on to {join.name!r}, but {name!r} does not "
                f"come after it, so a message from {name!r} cannot tell whom else to wait for; let {name!r} come after "
                f"{chooser!r}, or join without what {chooser!r} chooses"
            )
            problems.append(Problem(path, text))


def _check_headers(stages: Stages, edges: Edges, successors: Edges, problems: list[Problem]) -> None:
    choosers = [name for name, stage in stages.items() if stage.spec.choose is not None]
    lists = {
        "all choices of a request": sum(_length((name, *successors[name])) for name in choosers),
        "the names of all sinks": _length(name for name in stages if not successors[name]),
        **{f"the predecessors of {name!r}": _length(before) for name, before in edges.items()},
    }
    for what, length in lists.items():
        if length > MAX_PATH_BYTES:
            text = f"{what} may take {length} bytes of a header, and {MAX_PATH_BYTES} is the limit; use shorter names"
            problems.append(Problem(("stages",), text, on_key=True))


def _length(found: Iterable[str]) -> int:
    return sum(len(name) + 1 for name in found)
