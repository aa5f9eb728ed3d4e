"""What may come of a query at each stage of a pipeline, and of the whole: computed again from its inputs.

Where no query is ever late that is one thing, but for joins that take what comes first. Else a stage that drops may
have dropped it, and one with a default may have answered that.
"""

from __future__ import annotations

import json
from itertools import combinations, product
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from spillway.agents.core.joins import MIN_WAIT_SECONDS
from spillway.agents.proof.pipelines.models import VALUE, RefusedError, answer_of, number_of, share, vector_of
from spillway.lineage import reasons
from spillway.lineage.message import DROPPED, FAILED, PREDICTION
from spillway.lineage.metric_names import GATE
from spillway.topology.spec import JoinSpec

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from spillway.agents.proof.pipelines.case import Case
    from spillway.lineage.message import Outcome
    from spillway.topology.load import Pipeline
    from spillway.topology.spec import StageSpec

_LATE: Final = (reasons.EXPIRED, reasons.TOO_LATE)
_UNREADABLE: Final = (reasons.NOT_AVRO, reasons.UNKNOWN_SCHEMA, reasons.CORRUPT)


class Made(NamedTuple):
    """A stage has outputs, in JSON, for these successors."""

    outputs: str
    to: tuple[str, ...]


class Lost(NamedTuple):
    """A query ended at a stage before its end."""

    stage: str
    kind: str
    reason: str


class Elsewhere(NamedTuple):
    """A query does not come here."""


May = Made | Lost | Elsewhere


def text_of(outputs: Mapping[str, Any]) -> str:
    return json.dumps(outputs, sort_keys=True, default=lambda array: array.tolist())


def said_of(outcome: Outcome) -> str | Lost:
    if outcome.kind == PREDICTION:
        return text_of(outcome.outputs)
    return Lost(outcome.stage, outcome.kind, outcome.reason)


class Semantics:
    """What may come of each query of a case."""

    def __init__(self, case: Case, pipeline: Pipeline, seconds: float, fatal: Collection[str] = ()) -> None:
        """`seconds`: how long the run was. `fatal`: stages at which queries may have failed as workers died."""
        self._case, self._pipeline, self._graph = case, pipeline, pipeline.graph
        self._times_out = not case.patient and seconds > MIN_WAIT_SECONDS  # whether a join may give up waiting
        self._fatal = fatal
        self._known: dict[tuple[str, bool], dict[str, frozenset[May]]] = {}

    def of(self, request_id: str, *, unreadable: bool) -> dict[str, frozenset[May]]:
        """Return what may come of a query, by stage. `unreadable`: its value is no query."""
        key = request_id, unreadable
        found = self._known.get(key)
        if found is None:
            found, query = {}, None if unreadable else request_id
            self._known[key] = found
            for name in self._graph.order:
                found[name] = frozenset(self._at(self._pipeline.spec.stage(name), found, query))
        return found

    def messages(self, stage: str, destination: str | None, may: Mapping[str, frozenset[May]]) -> set[str | Lost]:
        """Return what a stage may tell another one, or the gate (None): values as JSON, and losses."""
        told: set[str | Lost] = {each for each in may[stage] if isinstance(each, Lost)}
        for made in may[stage]:
            if isinstance(made, Made) and (destination in made.to if destination else not made.to):
                told.add(text_of(self._given(stage, made, destination)) if destination else made.outputs)
        return told

    def outcomes(self, may: Mapping[str, frozenset[May]]) -> set[str | Lost]:
        """Return what outcomes a query may have: predictions as JSON, and losses."""
        found: set[str | Lost] = set()
        ends = [name for name in self._graph.order if not self._graph.successors[name] or self._graph.is_chooser(name)]
        for reports in product(*([self._report(name, each) for each in may[name]] for name in ends)):
            heard = {name: each for name, each in zip(ends, reports, strict=True) if not isinstance(each, Elsewhere)}
            found.update(self._decided(heard))
        if self._times_out and self._pipeline.spec.sinks is not None:
            found.add(Lost(GATE, FAILED, reasons.JOIN_TIMEOUT))
        return found

    # A stage ---------------------------------------------------------------------------------------------------

    def _at(self, spec: StageSpec, may: Mapping[str, frozenset[May]], query: str | None) -> Iterator[May]:
        before = self._graph.predecessors[spec.name]
        if before:
            given = product(*([self._input(name, each, spec.name) for each in may[name]] for name in before))
            for parts in given:
                heard = dict(zip(before, parts, strict=True))
                yield from self._joined(spec, heard) if len(before) > 1 else self._single(spec, parts[0])
        elif query is None:
            yield from (Lost(spec.name, FAILED, reason) for reason in _UNREADABLE)
        else:
            yield from self._run(spec, {VALUE: vector_of(number_of(query)) if self._case.vectors else query})

    def _single(self, spec: StageSpec, part: dict[str, Any] | Lost | Elsewhere) -> Iterator[May]:
        if isinstance(part, dict):
            yield from self._run(spec, part)
        else:
            yield part

    def _joined(self, spec: StageSpec, heard: Mapping[str, dict[str, Any] | Lost | Elsewhere]) -> Iterator[May]:
        results = {name: part for name, part in heard.items() if isinstance(part, dict)}
        losses = [part for part in heard.values() if isinstance(part, Lost)]
        if not results and not losses:
            yield Elsewhere()
        join = spec.join or JoinSpec()
        for chosen in _chosen(join, results, losses):
            yield from self._run(spec, _inputs_of(chosen))
        if losses and (not results or (join.mode, join.on_loss) == ("all", "drop")):
            yield from losses
        if self._times_out:
            yield Lost(spec.name, FAILED, reasons.JOIN_TIMEOUT)
            for some in _parts_of(results) if join.on_loss == "partial" else ():
                yield from self._run(spec, _inputs_of(some))

    def _run(self, spec: StageSpec, inputs: Mapping[str, Any]) -> Iterator[May]:
        failures = {reasons.MODEL_DIED} if spec.name in self._fatal else set()
        for model in _models(spec):
            try:
                yield self._made(spec, answer_of(str(model.model), inputs, model.arguments))
            except RefusedError:
                failures.add(reasons.MODEL_RAISED)
        yield from (Lost(spec.name, FAILED, reason) for reason in failures)
        if spec.lanes and failures and spec.default is not None:
            yield self._made(spec, spec.default_outputs)
        if self._case.patient:
            return
        if spec.default is not None:
            yield self._made(spec, spec.default_outputs)
        elif (spec.policy or self._pipeline.spec.policy) != "naive":
            late = (*_LATE, reasons.NO_WORKER) if spec.lanes else _LATE  # the first refusal of several lanes
            yield from (Lost(spec.name, DROPPED, reason) for reason in late)

    def _made(self, spec: StageSpec, outputs: Mapping[str, Any]) -> Made:
        to = tuple(outputs["to"]) if spec.choose else self._graph.successors[spec.name]
        return Made(text_of(outputs), to)

    def _input(self, sender: str, may: May, stage: str) -> dict[str, Any] | Lost | Elsewhere:
        if isinstance(may, Made):
            return self._given(sender, may, stage) if stage in may.to else Elsewhere()
        return may

    def _given(self, sender: str, made: Made, stage: str) -> dict[str, Any]:
        outputs: dict[str, Any] = json.loads(made.outputs)
        return share(outputs, stage) if self._pipeline.spec.stage(sender).split else outputs

    # The gate --------------------------------------------------------------------------------------------------

    def _report(self, stage: str, may: May) -> May:
        """Return what the gate hears where such comes of a query: of a chooser only what ends at it."""
        if not self._graph.successors[stage]:
            return may
        return may if isinstance(may, Made) and not may.to else Elsewhere()

    def _decided(self, heard: Mapping[str, May]) -> Iterable[str | Lost]:
        sinks = self._pipeline.spec.sinks
        results = {name: json.loads(each.outputs) for name, each in heard.items() if isinstance(each, Made)}
        losses = [each for each in heard.values() if isinstance(each, Lost)]
        if sinks == "all":
            if losses:
                return losses
            return [text_of({f"{name}.{key}": value for name, made in results.items() for key, value in made.items()})]
        return [text_of(made) for made in results.values()] if results else losses


def _models(spec: StageSpec) -> list[StageSpec]:
    """Return the stages of one model that a stage comes to: of each member or variant, any of which may answer."""
    one = spec.variant if spec.variants is not None else spec.member
    return [one(lane) for lane in spec.lanes] or [spec]


def _chosen(join: JoinSpec, results: dict[str, dict[str, Any]], losses: list[Lost]) -> list[dict[str, dict[str, Any]]]:
    """Return the parts of which a join may make its request, if it makes one."""
    if join.mode == "any":
        return [{name: part} for name, part in results.items()]
    return [results] if results and (not losses or join.on_loss == "partial") else []


def _parts_of(results: dict[str, dict[str, Any]]) -> Iterator[dict[str, dict[str, Any]]]:
    """Return all parts of some results, but for none and for the whole."""
    for size in range(1, len(results)):
        for names in combinations(results, size):
            yield {name: results[name] for name in names}


def _inputs_of(parts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {f"{name}.{key}": value for name, part in parts.items() for key, value in part.items()}
