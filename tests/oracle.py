"""What must be true of a pipeline's answers, whatever went wrong on the way. Pure: it judges lists.

Exactly one outcome for every accepted query, none for others, the right one; and no query executed twice by a stage
but where a process of that very stage was replaced before it had committed, so that the gate cannot hide a broken hop.
Every function gives a list of problems, empty when all is well.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import chain, combinations, pairwise, product
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

PREDICTION = "prediction"


class Answer(NamedTuple):
    """One record of the egress: `told` is the prediction's value, or the reason of a loss."""

    request_id: str
    kind: str
    told: Any


def outcome_problems(
    accepted: Iterable[str], egress: Iterable[tuple[str, str, Any]], right: Callable[[str, str, Any], bool]
) -> list[str]:
    """Check that each accepted query has exactly one outcome, and `right(id, kind, told)` is true of it."""
    answers = [Answer(*answer) for answer in egress]
    counts = Counter(answer.request_id for answer in answers)
    wanted = set(accepted)
    problems = [f"{request_id}: no outcome" for request_id in sorted(wanted - counts.keys())]
    problems += [f"{request_id}: outcome of a query that nobody sent" for request_id in sorted(counts.keys() - wanted)]
    problems += [f"{request_id}: {number} outcomes" for request_id, number in sorted(counts.items()) if number > 1]
    problems += [
        f"{answer.request_id}: wrong outcome {answer.kind} {answer.told!r}" for answer in answers if not right(*answer)
    ]
    return problems


def repetition_problems(executions: Iterable[tuple[str, str, Any]], replaced: Collection[str]) -> list[str]:
    """Check executions given as (stage, request id, process): one per process, one in all unless the stage is in
    `replaced`, the stages of which a process was killed or lost a partition.
    """
    by_query: dict[tuple[str, str], Counter[Any]] = defaultdict(Counter)
    for stage, request_id, process in executions:
        by_query[stage, request_id][process] += 1
    problems = []
    for (stage, request_id), processes in sorted(by_query.items()):
        problems += [
            f"{request_id}: executed {times} times by process {process} of {stage}"
            for process, times in processes.items()
            if times > 1
        ]
        if len(processes) > 1 and stage not in replaced:
            problems.append(
                f"{request_id}: executed by {len(processes)} processes of {stage}, none of which was replaced"
            )
    return problems


class ExecutionLike(Protocol):
    """One request in one started batch; `sequence` is the offset that it had in the stage's input."""

    stage: str
    request_id: str
    partition: int
    sequence: int
    tenure: int


class TenureLike(Protocol):
    """One assignment of a partition to a process, numbered in order; `committed` is where it started."""

    committed: int


def execution_problems(executions: Iterable[ExecutionLike], tenures: Mapping[int, TenureLike]) -> list[str]:
    """Check that within one assignment of a partition a query is executed once, and that a later assignment executes
    again only what was not committed when it began.
    """
    by_query: dict[tuple[str, str], list[ExecutionLike]] = defaultdict(list)
    for execution in executions:
        by_query[execution.stage, execution.request_id].append(execution)
    problems = []
    for (stage, request_id), times in sorted(by_query.items()):
        times.sort(key=lambda execution: execution.tenure)
        for earlier, later in pairwise(times):
            if earlier.tenure == later.tenure:
                problems.append(f"{request_id}: executed twice by {stage} in one assignment")
            elif earlier.sequence < tenures[later.tenure].committed:
                problems.append(f"{request_id}: executed by {stage}, committed, and executed again")
    return problems


class Routes(Protocol):
    """What the oracle needs of a pipeline's graph."""

    predecessors: Mapping[str, tuple[str, ...]]

    def is_join(self, stage: str) -> bool: ...
    def expected(self, stage: str, path: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]: ...
    def terminals(self, path: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]: ...


def values(
    graph: Routes, rules: Mapping[str, tuple[str, str]], path: Mapping[str, tuple[str, ...]], stage: str, query: Any
) -> set[Any]:
    """Compute what `stage` may give for a query, where each stage wraps what it got: (stage, value), or at a join
    (stage, ((predecessor, value), ...)). `rules` has each join's mode and what it does on a loss.
    """
    before = graph.predecessors[stage]
    if not before:
        return {(stage, query)}
    if not graph.is_join(stage):
        return {(stage, value) for value in values(graph, rules, path, before[0], query)}
    expected = sorted(graph.expected(stage, path))
    mode, on_loss = rules[stage]
    if mode == "any":
        groups: Iterable[tuple[str, ...]] = [(name,) for name in expected]
    elif on_loss == "partial":
        groups = chain.from_iterable(combinations(expected, size) for size in range(1, len(expected) + 1))
    else:
        groups = [tuple(expected)]
    found = set()
    for group in groups:
        for parts in product(*(values(graph, rules, path, name, query) for name in group)):
            found.add((stage, tuple(zip(group, parts, strict=True))))
    return found
