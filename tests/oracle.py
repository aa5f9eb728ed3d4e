"""What must be true of a pipeline's answers, whatever went wrong on the way. Pure: it judges lists.

Exactly one outcome for every accepted query, none for others, the right one; and no query executed twice by a stage
but where a process of that very stage was replaced before it had committed, so that the gate cannot hide a broken hop.
Every function gives a list of problems, empty when all is well.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable


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
