"""Extras that are parity queries, and answers that are made of parity answers (ParM), off the loop.

A place of a group is one query of each of its batches. A query whose tensors are not those of the card, or not finite,
is not coded: like a batch that is missing or shorter, it is stood in for by the reference, whose answer is known.
Parameters are not coded: the model must answer by its inputs.

Encoder and decoder may be the author's own. Where either raises, or returns what is no query or answer, nothing is made
for that place: its queries have what their own workers answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway.agents.coding.deployed import load_code, read_parities
from spillway.agents.coding.parity import PARITY
from spillway.agents.core.agreement import Agreement
from spillway.agents.core.deadlines import Deadlines
from spillway.agents.core.dispatch import VERSION, Dispatch
from spillway.agents.live.stage.batch_work import Prepared
from spillway.agents.models.contract import copied
from spillway.agents.models.flagged import Flagged
from spillway.agents.models.inputs import Inputs
from spillway.agents.models.model_errors import RaisedLog
from spillway.lineage.errors import UsageError
from spillway.lineage.values.tensors import DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from spillway.agents.coding.card import Tensor
    from spillway.agents.coding.codes import Arrays, Code
    from spillway.agents.coding.deployed import Parities
    from spillway.agents.core.batching import Batch
    from spillway.agents.core.dispatch import Extra, Group, Made, Recovery
    from spillway.agents.live.stage.batch_work import BatchWork
    from spillway.topology.sections import CodingSpec
    from spillway.topology.spec import StageSpec


@dataclass(frozen=True, slots=True)
class Coding:
    """What a stage codes with."""

    spec: CodingSpec
    parities: Parities
    code: Code
    stage: str = ""

    def dispatch(self) -> Dispatch:
        spec = self.spec
        paused = VERSION if self.parities.outdated else ""
        more: dict[str, Any] = {"paused": paused, "agreement": Agreement(spec.floor)}
        more["shared"] = spec.shared and not paused
        more["release"] = Deadlines() if spec.release == "budget" else None
        return Dispatch(width=spec.k, rows=spec.rows, wait=spec.group_wait, room=spec.room, **more)


def load_coding(stage: StageSpec, spec: CodingSpec, beside: Path) -> Coding:
    """Raises ModelError as `read_parities` and `load_code`."""
    return Coding(spec, read_parities(stage, spec, beside), load_code(stage, spec), stage.name)


class CodeWork:
    """Parity queries of groups, and answers made of the rows' answers."""

    def __init__(self, work: BatchWork, coding: Coding) -> None:
        self._work = work
        self._coding = coding
        self._card = coding.parities.cards[0]
        self._reference = coding.parities.reference
        self._raised = RaisedLog(coding.stage)
        expected = coding.parities.expected
        self._flags: dict[str, Any] = {"reconstructed": True} | ({} if expected is None else {"expected": expected})

    def prepare(self, job: Extra) -> Prepared:
        """Encode a group's queries, place by place; a place that cannot be encoded is left out."""
        queries = self._queries(job.group)
        job.outputs = [None] * len(queries)
        prepared = Prepared(job, [None] * len(queries))
        for place, coded in enumerate(queries):
            encoded = self._encoded([query or self._reference[0] for query in coded], job.row)
            if encoded is not None:
                prepared.inputs.append(Inputs(encoded, {PARITY: job.row} if self._coding.spec.shared else {}, "", ""))
                prepared.places.append(place)
        return prepared

    def _encoded(self, queries: list[Arrays], row: int) -> dict[str, Any] | None:
        """The parity query of a place; None where the encoder makes none."""
        try:
            return _query(self._coding.code.encode(copied(queries), row))
        except BaseException as error:  # noqa: BLE001 - the author's encoder
            self._raised.words(error, "the encoder")
            return None

    def result(self, prepared: Prepared, place: int, answer: Mapping[str, Any], seconds: float) -> None:
        prepared.batch.seconds = seconds
        prepared.batch.outputs[prepared.places[place]] = self._fitting(answer.get("outputs"))

    def recover(self, recovery: Recovery) -> Made:
        """Make the answers that are missing; one that comes out infinite or misshapen is none."""
        group = recovery.group
        made: list[list[Any]] = [[None] * len(batch.requests) for batch in group.batches]
        for place, solved in enumerate(self._answers(group)):
            for slot, answer in solved.items():
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
            made = group.answers.get(slot) or (solved.get(slot) for solved in self._answers(group, slot))
            for own, answer in zip(map(self._fitting, outputs), made, strict=False):
                if own is not None and answer is not None:
                    grades.append(self._agree(own, answer))
        return sum(grades), len(grades)

    def _answers(self, group: Group, gone: int | None = None) -> Iterator[dict[int, Arrays]]:
        """By place, what can be made of the answers that are missing; as if the batch `gone` had not been answered."""
        for place, coded in enumerate(self._queries(group)):
            known = [self._known(group, slot, place, query) for slot, query in enumerate(coded)]
            if gone is not None and coded[gone] is not None:
                known[gone] = None
            yield self._solved(group, place, known)

    def _solved(self, group: Group, place: int, known: list[Arrays | None]) -> dict[int, Arrays]:
        """The answers of a place that are missing, by the batches' places, as far as they can be made."""
        rows = {row: extra.outputs[place] for row, extra in group.rows.items() if extra.outputs[place] is not None}
        if not rows or all(answer is not None for answer in known):
            return {}
        try:
            solved = self._coding.code.decode(copied(known), copied(rows))
            missing = [] if solved is None else [n for n, own in enumerate(known) if own is None and n in solved]
            made = {slot: self._fitting(solved[slot]) for slot in missing}  # type: ignore[index]
        except BaseException as error:  # noqa: BLE001 - the author's decoder
            self._raised.words(error, "the decoder")
            return {}
        return {slot: answer for slot, answer in made.items() if answer is not None}

    def _agree(self, own: Arrays, made: Arrays) -> bool:
        """Whether two answers are the same to the stage: by what `finish` makes of them, else by their arg max."""
        spec = self._coding.spec
        try:
            if spec.finish is None and not spec.tolerance:
                return all(np.argmax(value) == np.argmax(made[name]) for name, value in own.items())
            return alike(self._work.finished(own), self._work.finished(made), spec.tolerance)
        except BaseException:  # noqa: BLE001 - what cannot be finished, or compared, agrees with nothing
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
            column[place] = _tensors(inputs, self._card.inputs)
        return column

    def _known(self, group: Group, slot: int, place: int, query: Arrays | None) -> Arrays | None:
        if query is None:
            return self._reference[1]
        outputs = group.batches[slot].outputs
        return None if outputs is None else self._fitting(outputs[place])

    def _fitting(self, outputs: Any) -> Arrays | None:
        """Outputs as the card has them; None for any other."""
        return _tensors(outputs, self._card.outputs)


def _query(values: Any) -> dict[str, Any]:
    """What an encoder returned, as a query. Raises UsageError, or whatever the values do when they are read."""
    made = {name: np.asarray(value) for name, value in values.items()}
    if not all(isinstance(name, str) and value.dtype.name in DTYPES for name, value in made.items()):
        raise UsageError(f"encode must return arrays of numbers by name, not {made!r:.80}")
    return made


def _tensors(values: Any, card: Mapping[str, Tensor]) -> Arrays | None:
    """Values as a card has them; None for any other."""
    try:
        if not isinstance(values, Mapping) or values.keys() != card.keys():
            return None
        arrays = {name: np.asarray(values[name]) for name in card}
        return arrays if all(card[name].fits(value) for name, value in arrays.items()) else None
    except BaseException:  # noqa: BLE001 - a list that is no array, an object of a model's own
        return None


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
