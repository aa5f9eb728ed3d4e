"""Extras that are parity queries, and answers that are made of parity answers (ParM), off the loop.

A place of a group is one query of each of its batches. A query whose tensors are not those of the card, or not finite,
is not coded: like a batch that is missing or shorter, it is stood in for by the reference, whose answer is known.
Parameters are not coded: the model must answer by its inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from agents.coding.deployed import load_code, read_parities
from agents.core.agreement import Agreement
from agents.core.dispatch import VERSION, Dispatch
from agents.live.stage.batch_work import Prepared
from agents.models.flagged import Flagged
from agents.models.inputs import Inputs
from lineage.errors import WireError

if TYPE_CHECKING:
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
        more: dict[str, Any] = {"paused": paused, "agreement": Agreement(spec.floor)}
        return Dispatch(width=spec.k, rows=spec.rows, wait=spec.group_wait, room=spec.room, **more)


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
        made: list[list[Any]] = [[None] * len(batch.requests) for batch in group.batches]
        for place, coded in enumerate(self._queries(group)):
            known = [self._known(group, slot, place, query) for slot, query in enumerate(coded)]
            for slot, answer in self._solved(group, place, known).items():
                if place < len(made[slot]):
                    made[slot][place] = Flagged(answer, **self._flags)
        group.answers = dict(enumerate(made))
        seconds = max(extra.seconds for extra in group.rows.values())
        return [
            (group.batches[slot], self._work.made(group.batches[slot], made[slot], seconds, PARITY))
            for slot in recovery.places
        ]

    def grade(self, grading: Recovery) -> tuple[int, int]:
        """How many answers that were made agree with their batches' own, and how many could be graded."""
        group, grades = grading.group, []
        for slot in grading.places:
            outputs = group.batches[slot].outputs or ()
            made = group.answers.get(slot) or self._would_be(group, slot)
            for own, answer in zip(map(self._fitting, outputs), made, strict=False):
                if own is not None and answer is not None:
                    grades.append(self._agree(own, answer))
        return sum(grades), len(grades)

    def _would_be(self, group: Group, gone: int) -> list[Arrays | None]:
        """What would have been made for a batch that is answered."""
        made: list[Arrays | None] = []
        for place, coded in enumerate(self._queries(group)[: len(group.batches[gone].requests)]):
            known = [self._known(group, slot, place, query) for slot, query in enumerate(coded)]
            if coded[gone] is not None:
                known[gone] = None
            made.append(self._solved(group, place, known).get(gone))
        return made

    def _solved(self, group: Group, place: int, known: list[Arrays | None]) -> dict[int, Arrays]:
        """The answers of a place that are missing, by the batches' places, as far as they can be made."""
        rows = {row: extra.outputs[place] for row, extra in group.rows.items() if extra.outputs[place] is not None}
        if not rows or all(answer is not None for answer in known):
            return {}
        solved = self._coding.code.decode(known, rows) or {}
        return {slot: answer for slot, answer in solved.items() if self._fitting(answer) is not None}

    def _agree(self, own: Arrays, made: Arrays) -> bool:
        """Whether two answers are the same to the stage: by what `finish` makes of them, else by their arg max."""
        spec = self._coding.spec
        if spec.finish is None and not spec.tolerance:
            return all(np.argmax(value) == np.argmax(made[name]) for name, value in own.items())
        try:
            return alike(self._work.finished(own), self._work.finished(made), spec.tolerance)
        except WireError:  # what cannot be finished agrees with nothing
            return False

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


def alike(one: Any, other: Any, tolerance: float) -> bool:
    """Whether two values are equal but for numbers that differ by no more than the tolerance."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(alike(one[name], other[name], tolerance) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other, [tolerance] * len(one)))
    values = np.asarray(one), np.asarray(other)
    if all(value.dtype.kind in "biuf" for value in values) and values[0].shape == values[1].shape:
        return bool((np.abs(values[0].astype(float) - values[1].astype(float)) <= tolerance).all())
    return type(one) is type(other) and bool(np.array_equal(*values))
