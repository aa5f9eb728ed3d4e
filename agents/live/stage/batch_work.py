"""What happens to a batch off the event loop: join the parts, run the model, route and encode the results.

Every way in which a model or an author's function can fall short ends as a `Failed` for the queries concerned; a batch
that fails as a whole, or that its process dies of, is run again one by one, so that one query's fault does not reach
its neighbours.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from spillway.agents.core.actions import DEFAULT, Executed, Failed, Ok, Result, timing_of
from spillway.agents.core.crash_suspects import Care
from spillway.agents.core.routes.ensemble import Joint
from spillway.agents.live.stage.cached import kept
from spillway.agents.live.stage.crash_watch import CrashWatch
from spillway.agents.models.contract import answers as run_answers
from spillway.agents.models.contract import copied
from spillway.agents.models.flagged import Flagged, answered
from spillway.agents.models.inputs import Inputs, given_inputs
from spillway.agents.models.loading import load_function
from spillway.agents.models.model_errors import ModelRaisedError, RaisedLog, words_of
from spillway.agents.run.emission import about, flags_with, timings_so_far
from spillway.lineage import reasons
from spillway.lineage.errors import WireError
from spillway.lineage.flags import DEFAULT as FLAG
from spillway.lineage.flags import MISSING, checked, cut
from spillway.lineage.message import PREDICTION, Outcome, Query, StageTiming
from spillway.lineage.values import codec, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spillway.agents.core.batching import Batch
    from spillway.agents.core.request import Path, Request
    from spillway.agents.live.stage.lookups import Lookups
    from spillway.agents.models.contract import Answer
    from spillway.agents.models.loading import Model
    from spillway.agents.run.intake import Signature
    from spillway.lineage.flags import Flags
    from spillway.lineage.limits import Limits
    from spillway.topology.spec import StageSpec


Parts = dict[str, dict[str, Any]]  # predecessor -> its outputs
_Taken = TypeVar("_Taken")
_REASONS = frozenset({reasons.MODEL_RAISED, reasons.WRONG_RESULT_COUNT, reasons.BAD_RESULT, reasons.TOO_LARGE})


def _anything(_inputs: dict[str, Any]) -> None:
    """Refuse nothing."""


class UserFunctions:
    """What a stage does around its model. Each method raises WireError(BAD_ROUTE) where the author's code does not fit.

    `successors` are the stages that an edge leads to; empty for a sink. `expected` gives the predecessors that a query
    with such a path has.
    """

    def __init__(
        self, spec: StageSpec, successors: tuple[str, ...], expected: Callable[[Path], tuple[str, ...]] | None = None
    ) -> None:
        self._successors = successors
        partial = spec.join is not None and (spec.join.mode, spec.join.on_loss) == ("all", "partial")
        self._expected = expected if partial else None
        self.raised = RaisedLog(spec.name)  # for all code of the author's that the stage runs
        self._join = _optional(spec.name, "join", spec.join.function if spec.join else None)
        self._split = _optional(spec.name, "split", spec.split)
        self._choose = _optional(spec.name, "choose", spec.choose)
        self._finish = _optional(spec.name, "finish", spec.coding.finish if spec.coding else None)

    @property
    def any(self) -> bool:
        """Whether an author's function gets the model's outputs."""
        return any(each is not None for each in (self._finish, self._split, self._choose))

    def join(
        self, parts: Parts, check: Callable[[dict[str, Any]], None] = _anything, request: Request | None = None
    ) -> dict[str, Any]:
        """Make one query's inputs of what its predecessors delivered; by default `{predecessor.name: value}`.

        `check` may refuse them, by a WireError.
        """
        if self._join is None:
            made = {f"{stage}.{name}": value for stage, outputs in parts.items() for name, value in outputs.items()}
            check(made)
            return made
        made = self._call("join", self._join, parts, _mapping, request)
        check(made)  # before numpy's scalars become plain numbers, which have no dtype
        try:
            return _values(made)
        except _UnfitError as error:
            raise WireError(reasons.BAD_ROUTE, f"join{error}") from error

    def missing(self, request: Request) -> list[str]:
        """The predecessors that a partial join went on without."""
        if self._expected is None:
            return []
        return sorted(set(self._expected(request.path)).difference(part.predecessor for part in request.parts))

    def finish(self, outputs: Mapping[str, Any], request: Request | None = None) -> dict[str, Any]:
        """Make the stage's outputs of the model's; they are the same but for a coded stage that says otherwise."""
        if self._finish is None:
            return dict(outputs)
        return self._call("finish", self._finish, outputs, _values, request)

    def route(
        self, outputs: dict[str, Any], request: Request | None = None
    ) -> tuple[tuple[str, ...] | None, dict[str | None, dict[str, Any]]]:
        """Return the chosen successors (None where there is no choice) and what to send to each; None is the gate.

        `outputs`: of the stage (`finish`).
        """
        chosen = None
        if self._choose is not None:
            chosen = self._call("choose", self._choose, outputs, self._successors_of, request)
        targets: tuple[str | None, ...] = (chosen if chosen is not None else self._successors) or (None,)
        if self._split is None or targets == (None,):
            return chosen, dict.fromkeys(targets, outputs)
        return chosen, self._call("split", self._split, outputs, lambda shares: self._shares(shares, targets), request)

    def _successors_of(self, answer: Any) -> tuple[str, ...]:
        names = (answer,) if isinstance(answer, str) else tuple(answer if answer is not None else ())
        self._refuse_strangers(names)
        return tuple(name for name in self._successors if name in names)

    def _shares(self, shares: Any, targets: tuple[str | None, ...]) -> dict[str | None, dict[str, Any]]:
        if not isinstance(shares, Mapping):
            raise _UnfitError(f" returned {type(shares).__name__}, not a mapping")
        self._refuse_strangers(shares)
        missing = [target for target in targets if target not in shares]
        if missing:
            raise _UnfitError(f" returned nothing for {', '.join(map(str, missing))}")
        made: dict[str | None, dict[str, Any]] = {}
        for target in targets:
            try:
                made[target] = _values(shares[target])
            except _UnfitError as error:
                raise _UnfitError(f" for {target}{error}") from error
        return made

    def _refuse_strangers(self, names: Iterable[Any]) -> None:
        for name in names:
            if name not in self._successors:
                known = ", ".join(self._successors)
                raise _UnfitError(f" named {name!r:.80}, which is not a successor; the successors are {known}")

    def _call(
        self,
        role: str,
        function: Callable[..., Any],
        argument: Any,
        take: Callable[[Any], _Taken],
        request: Request | None,
    ) -> _Taken:
        """Return what `take` makes of a function's result. The function gets a copy: what it changes is its own."""
        try:
            return take(function(copied(argument)))
        except _UnfitError as error:
            raise WireError(reasons.BAD_ROUTE, f"{role}{error}") from error
        except BaseException as error:  # user code
            words = self.raised.words(error, role, about(request) if request is not None else None)
            raise WireError(reasons.BAD_ROUTE, f"{role} raised {words}") from error


class _UnfitError(Exception):
    """What a function returned cannot be used; the text goes on from the function's role."""


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _UnfitError(f" returned {type(value).__name__}, not a mapping")
    return dict(value)


def _values(value: Any) -> dict[str, Any]:
    try:
        return plain.plain_map(_mapping(value), [plain.MOST_VALUES])
    except plain.PlainError as error:
        raise _UnfitError(f" returned what cannot travel: {error}") from error


def _optional(stage: str, role: str, name: str | None) -> Callable[..., Any] | None:
    return load_function(stage, role, name) if name else None


@dataclass(slots=True)
class Prepared:
    """A batch, or an extra of a dispatch, and its inputs.

    `places` are those of the queries that have some; the others have a result. No model gets these inputs themselves:
    each run has a copy (`spillway.agents.models.contract`).
    """

    batch: Any
    results: list[Result | None]
    inputs: list[Inputs] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    looked: list[Flags | None] = field(default_factory=list)  # what the outcome tells of tables, by input
    version: str | None = None  # of the model that ran it, as its worker says
    singly: bool = False  # as one of the queries may end its worker, and it is to be known which

    def executed(self, seconds: float, ended: float) -> Executed:
        return Executed([result for result in self.results if result is not None], seconds, ended)


class BatchWork:
    """Runs batches on a stage's model instances. `run` may be called from several threads, one per instance."""

    def __init__(
        self,
        spec: StageSpec,
        models: Mapping[int, Model] | Sequence[Model],
        functions: UserFunctions,
        *,
        joins: bool,
        version: str,
        signature: Signature | None,
        limits: Limits,
        guard: CrashWatch | None = None,
        lookups: Lookups | None = None,
    ) -> None:
        """`version`: what its model says, unless the spec has one, or a worker says another.

        `lookups`: the tables that the stage is given.
        """
        self._stage = spec.name
        self._default = spec.default_outputs
        self._lookups = lookups
        self._caches = spec.cache is not None  # answers are remembered: a model sees no request's id or key
        self._keeps = spec.coding is not None  # a batch keeps its outputs, as answers may be made of them
        self.guard = guard or CrashWatch()
        self._models = models
        self._functions = functions
        self._joins = joins
        self._model_name = spec.model or _kind_of(spec)
        self._version = str(spec.version or version)
        self._fixed = spec.version is not None
        self._signature = signature
        self._limits = limits
        self._raised = functions.raised
        self._raw = not (self._caches or self._keeps or functions.any)  # whether a model's outputs are only encoded

    def run(self, instance: int, batch: Batch, seconds: float | None = None) -> Executed:
        """Run one batch; never raises for what a model or a query does.

        `seconds`: what it takes where time is virtual; None: what it took.
        """
        prepared = self.prepare(batch)
        began = time.perf_counter()
        answers = self._answers(instance, prepared) if prepared.inputs else {}
        return self.finish(prepared, answers, time.perf_counter() - began if seconds is None else seconds)

    def prepare(self, batch: Batch) -> Prepared:
        """The inputs of a batch's queries; what cannot be had of one is its result."""
        prepared = Prepared(batch, [None] * len(batch.requests))
        for place, request in enumerate(batch.requests):
            try:
                inputs = self._inputs(request)
                looked = None
                if self._lookups is not None:
                    found, looked = self._lookups.add(inputs, request)
                    inputs = Inputs(found, inputs.parameters, inputs.request_id, inputs.key)
            except WireError as error:
                prepared.results[place] = Failed(error.reason, str(error))
                continue
            except BaseException as error:  # noqa: BLE001 - what an author's join returned may raise anything
                words = self._raised.words(error, "reading the inputs", about(request))
                prepared.results[place] = Failed(reasons.BAD_ROUTE, f"the inputs cannot be read: {words}")
                continue
            prepared.inputs.append(inputs)
            prepared.looked.append(looked)
            prepared.places.append(place)
            prepared.singly = prepared.singly or request.suspect
        return prepared

    def finish(self, prepared: Prepared, answers: Mapping[int, Answer | Failed], seconds: float) -> Executed:
        """The results of a batch whose model took `seconds` and gave `answers`, one for each of the inputs."""
        ended = time.monotonic()
        for place, answer in answers.items():
            result = answer if isinstance(answer, Failed) else self.result(prepared, place, answer, seconds)
            prepared.results[prepared.places[place]] = result
        return prepared.executed(seconds, ended)

    def _inputs(self, request: Request) -> Inputs:
        parts = request.parts
        first: Query = parts[0].payload.message
        identity, key = request.request_id, (parts[0].payload.record.key or b"").decode("utf-8", "backslashreplace")
        if self._caches:
            identity = key = ""
        inputs = first.inputs
        if self._joins:
            check = _anything if self._signature is None else self._signature.check
            outputs = {part.predecessor: part.payload.message.inputs for part in parts}
            inputs = self._functions.join(outputs, check, request)
        return Inputs(inputs, first.parameters, identity, key)

    def _answers(self, instance: int, prepared: Prepared) -> dict[int, Answer | Failed]:
        """What the model of an instance answers to each of the inputs; of one that processes died of that it did."""
        guard, requests = self.guard, prepared.batch.requests
        answers: dict[int, Answer | Failed] = {}
        for place, at in enumerate(prepared.places if guard.deaths else ()):
            care = guard.care(requests[at])
            if care is Care.FAIL:
                answers[place] = guard.guilty(requests[at])
            elif care is Care.ALONE:
                (answers[place],) = self._run(instance, prepared, [place])
        together = [place for place in range(len(prepared.places)) if place not in answers]
        if together:
            answers |= zip(together, self._run(instance, prepared, together), strict=True)
        return answers

    def _run(self, instance: int, prepared: Prepared, places: Sequence[int]) -> list[Answer]:
        requests, inputs, model = prepared.batch.requests, prepared.inputs, self._models[instance]

        def predict(those: Sequence[int], batch: list[Any]) -> Any:
            with self.guard.running(instance, [requests[prepared.places[place]] for place in those]):
                return model.predict(batch)

        return run_answers(predict, lambda place: given_inputs(inputs[place]), places, words_of, raw=self._raw)

    def result(self, prepared: Prepared, place: int, answer: Mapping[str, Any], seconds: float) -> Result:
        """What a model answered to the query at `place` of the inputs (`spillway.agents.workers.shim`)."""
        batch, at = prepared.batch, prepared.places[place]
        output = self.output(prepared, place, answer)
        if self._keeps and not isinstance(output, Failed):
            _keep(batch, at, output)
        return self._result(batch.requests[at], output, seconds, len(batch.requests), version=prepared.version)

    def output(self, prepared: Prepared, place: int, answer: Mapping[str, Any]) -> Mapping[str, Any] | Failed:
        """The outputs in an answer, with its flags and those of the tables that its inputs were made of."""
        if "outputs" not in answer:
            return self.failed(answer, prepared.batch.requests[prepared.places[place]])
        looked, own = prepared.looked[place], answer.get("flags")
        output = answer["outputs"] if own is None else answered(answer)
        if type(output) is not dict and not isinstance(output, Mapping):
            return Failed(reasons.BAD_RESULT, f"the model returned {type(output).__name__}, not a mapping")
        if looked is None or not isinstance(own, Mapping | None):
            return output
        return Flagged(output, **{**looked, **(own or {})})

    def failed(self, answer: Mapping[str, Any], request: Request) -> Failed:
        """Why an answer has no outputs; what the model raised is logged."""
        text = str(answer.get("error"))
        reason = answer.get("reason") or (reasons.MODEL_RAISED if answer.get("raised") else reasons.WRONG_RESULT_COUNT)
        trace = str(answer.get("trace") or "")
        if trace:
            self._raised.words(ModelRaisedError(text, trace), about=about(request))
        return Failed(reason if reason in _REASONS else reasons.MODEL_RAISED, text)

    def made(
        self, batch: Batch, outputs: Sequence[Any], seconds: float, model: str, version: str | None = None
    ) -> list[Result | None]:
        """Results of answers that others than the batch's own worker gave, by place; None where there is none.

        `model` is what made them, in `seconds`; empty: the stage's, of `version`.
        """
        size = len(batch.requests)
        return [
            None if output is None else self._result(request, output, seconds, size, model, version)
            for request, output in zip(batch.requests, outputs, strict=True)
        ]

    def remembered(self, request: Request, output: Any, now: float) -> Result:
        """The result of a request whose answer was known, at `now`, or of `DEFAULT`; its timing has a batch of 0.

        Of an ensemble (`Joint`) it is from its first member's start, and has a batch of those who answered.
        """
        if output is DEFAULT:
            return self._known(request, self._default, timing_of(self._stage, request, now), {FLAG: True}, DEFAULT)
        if isinstance(output, Joint):
            timing = timing_of(self._stage, request, now, max(0.0, now - request.started), output.batch)
            if output.declined:
                return self._known(request, self._default, timing, output.flags | {FLAG: True}, DEFAULT)
            return self._known(request, output.outputs, timing, output.flags)
        request.entered = request.started = now
        output, version = output
        return self._result(request, output, 0.0, 0, version=version)

    def _known(
        self, request: Request, outputs: Mapping[str, Any], timing: StageTiming, flags: Flags, value: Any = None
    ) -> Result:
        """The result of a request whose answer did not come of its own batch."""
        try:
            return self._routed(request, dict(outputs), timing, checked(flags), value)
        except BaseException as error:  # noqa: BLE001 - an answer of the author's must not end the stage
            return self._unfit(request, error)

    def finished(self, outputs: Mapping[str, Any], request: Request | None = None) -> dict[str, Any]:
        """What the stage makes of its model's outputs. Raises WireError where it cannot."""
        return self._functions.finish(outputs, request)

    def _result(
        self,
        request: Request,
        output: Mapping[str, Any] | Failed,
        seconds: float,
        size: int,
        model: str = "",
        version: str | None = None,
    ) -> Result:
        if isinstance(output, Failed):
            return output
        by = self._version if self._fixed or version is None else version
        timing = StageTiming(
            self._stage,
            request.entered - request.arrived,
            request.started - request.entered,
            seconds,
            size,
            model or self._model_name,
            "" if model else by,
            int(request.arrived * 1e6),
        )
        try:
            said = getattr(output, "flags", None)
            own = None if said is None else checked(said)
            ok = self._routed(request, self._functions.finish(output, request), timing, own)
            if not self._caches:
                return ok
            value, size = kept(output, own)
            return replace(ok, value=(value, by), size=size)
        except BaseException as error:  # noqa: BLE001 - an answer of the author's must not end the stage
            return self._unfit(request, error)

    def _unfit(self, request: Request, error: BaseException) -> Failed:
        """Why an answer has no result."""
        if isinstance(error, WireError):
            reason = reasons.BAD_ROUTE if error.reason == reasons.BAD_ROUTE else reasons.BAD_RESULT
            return Failed(reason, str(error))
        words = self._raised.words(error, "reading a result", about(request))
        return Failed(reasons.BAD_RESULT, f"the result cannot be encoded: {words}")

    def _routed(
        self, request: Request, outputs: dict[str, Any], timing: StageTiming, own: Flags | None, value: Any = None
    ) -> Ok:
        """A stage's outputs on their way. `own`: what the stage says of them."""
        chosen, shares = self._functions.route(outputs, request)
        timings = [*timings_so_far(request), timing]
        missing = self._functions.missing(request)
        told = {**(own or {}), MISSING: missing} if missing else own
        payloads = self._encode(request, shares, timings, flags_with(request, self._stage, told))
        return Ok(payloads, chosen, value, flags=own)

    def _encode(
        self, request: Request, shares: dict[str | None, dict[str, Any]], timings: list[StageTiming], flags: Flags
    ) -> dict[str | None, bytes]:
        parameters = request.parts[0].payload.message.parameters

        def encode(target: str | None, outputs: dict[str, Any], flags: Flags) -> bytes:
            if target is not None:
                return codec.encode_query(Query(outputs, parameters, timings, flags), self._limits)
            outcome = Outcome(PREDICTION, outputs=outputs, stage=self._stage, timings=timings, flags=flags)
            return codec.encode_outcome(outcome, self._limits)

        payloads: dict[str | None, bytes] = {}
        same: dict[int, bytes] = {}  # a fan-out sends one encoding to every successor
        for target, outputs in shares.items():
            encoded = same.get(id(outputs))
            if encoded is None:
                try:
                    encoded = encode(target, outputs, flags)
                except WireError as error:
                    if not flags or error.reason != reasons.TOO_LARGE:
                        raise
                    encoded = encode(target, outputs, cut(self._stage))
                same[id(outputs)] = encoded
            payloads[target] = encoded
        return payloads


def _kind_of(spec: StageSpec) -> str:
    return "ensemble" if spec.ensemble is not None else "variants" if spec.variants is not None else "emulated"


def _keep(batch: Batch, place: int, output: Any) -> None:
    if batch.outputs is None:
        batch.outputs = [None] * len(batch.requests)
    batch.outputs[place] = output if isinstance(output, Mapping) else None
