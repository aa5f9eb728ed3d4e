"""Extras that are parity queries, and answers that are made of parity answers (ParM), off the loop.

A place of a group is one query of each of its batches. A query whose tensors are not those of the card, or not finite,
is not coded: like a batch that is missing or shorter, it is stood in for by the reference, whose answer is known.
Parameters are not coded: the model must answer by its inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from agents.coding.deployed import load_code, read_parities
from agents.core.dispatch import VERSION, Dispatch
from agents.live.stage.batch_work import Prepared
from agents.models.flagged import Flagged
from agents.models.inputs import Inputs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from agents.coding.codes import Arrays, Code
    from agents.coding.deployed import Parities
    from agents.core.batching import Batch
    from agents.core.dispatch import Extra, Group, Recovery
    from agents.live.stage.batch_work import BatchWork
    from agents.live.stage.extras import Made
    from topology.sections import CodingSpec
    from topology.spec import StageSpec


PARITY = "agents.coding.parity:Parity"


@dataclass(frozen=True, slots=True)
class Coding:
    """What a stage codes with."""

    spec: CodingSpec
    parities: Parities
    code: Code

    def dispatch(self) -> Dispatch:
        spec = self.spec
        paused = VERSION if self.parities.outdated else ""
        return Dispatch(width=spec.k, rows=spec.rows, wait=spec.group_wait, room=spec.room, paused=paused)


def load_coding(stage: StageSpec, spec: CodingSpec, beside: Path) -> Coding:
    """Raises ModelError as `read_parities` and `load_code`."""
    return Coding(spec, read_parities(stage, spec, beside), load_code(stage, spec))


class CodeWork:
    """Parity queries of groups, and answers made of the rows' answers."""

    def __init__(self, work: BatchWork, coding: Coding) -> None:
        self._work = work
        self._coding = coding
        self._card = coding.parities.cards[0]
        self._reference = coding.parities.reference
        expected = coding.parities.expected
        self._flags: dict[str, Any] = {"reconstructed": True} | ({} if expected is None else {"expected": expected})

    def prepare(self, job: Extra) -> Prepared:
        """Encode a group's queries, place by place."""
        queries = self._queries(job.group)
        job.outputs = [None] * len(queries)
        inputs = [
            Inputs(self._coding.code.encode([query or self._reference[0] for query in place], job.row), {}, "", "")
            for place in queries
        ]
        return Prepared(job, [None] * len(queries), inputs, list(range(len(queries))))

    def result(self, prepared: Prepared, place: int, answer: Mapping[str, Any], seconds: float) -> None:
        prepared.batch.seconds = seconds
        prepared.batch.outputs[place] = self._fitting(answer.get("outputs"))

    def recover(self, recovery: Recovery) -> Made:
        """Make the answers that are missing; one that comes out infinite or misshapen is none."""
        group = recovery.group
        queries = self._queries(group)
        made: list[list[Any]] = [[None] * len(batch.requests) for batch in group.batches]
        for place, coded in enumerate(queries):
            known = [self._known(group, slot, place, query) for slot, query in enumerate(coded)]
            rows = {row: extra.outputs[place] for row, extra in group.rows.items() if extra.outputs[place] is not None}
            if not rows or all(answer is not None for answer in known):
                continue
            for slot, answer in (self._coding.code.decode(known, rows) or {}).items():
                if self._fitting(answer) is not None and place < len(made[slot]):
                    made[slot][place] = Flagged(answer, **self._flags)
        seconds = max(extra.seconds for extra in group.rows.values())
        return [
            (group.batches[slot], self._work.made(group.batches[slot], made[slot], seconds, PARITY))
            for slot in recovery.places
        ]

    def _queries(self, group: Group) -> list[list[Arrays | None]]:
        """By place, each batch's query as far as it is coded; made once for all rows of a group."""
        if group.note is None:
            columns = [self._column(batch) for batch in group.batches]
            longest = max(map(len, columns))
            empty: list[Arrays | None] = [None] * longest
            columns += [empty] * (self._coding.spec.k - len(columns))
            group.note = [[(column + empty)[place] for column in columns] for place in range(longest)]
        return group.note  # type: ignore[no-any-return]

    def _column(self, batch: Batch) -> list[Arrays | None]:
        prepared = self._work.prepare(batch)
        column: list[Arrays | None] = [None] * len(batch.requests)
        for place, inputs in zip(prepared.places, prepared.inputs, strict=True):
            tensors = {name: np.asarray(inputs[name]) for name in self._card.inputs if name in inputs}
            fits = len(tensors) == len(self._card.inputs) == len(inputs)
            if fits and all(self._card.inputs[name].fits(value) for name, value in tensors.items()):
                column[place] = tensors
        return column

    def _known(self, group: Group, slot: int, place: int, query: Arrays | None) -> Arrays | None:
        if query is None:
            return self._reference[1]
        outputs = group.batches[slot].outputs
        return None if outputs is None else self._fitting(outputs[place])

    def _fitting(self, outputs: Any) -> Arrays | None:
        """Outputs as the card has them; None for any other."""
        card = self._card.outputs
        if outputs is None or len(outputs) != len(card):
            return None
        arrays = {name: np.asarray(outputs[name]) for name in card if name in outputs}
        fits = len(arrays) == len(card) and all(card[name].fits(value) for name, value in arrays.items())
        return arrays if fits else None
