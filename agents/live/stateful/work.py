"""What happens to a batch of a stateful stage off the event loop: join, compute, encode; and later the update.

Invariant: an update changes the state by exactly the queries whose results leave (those are what a version records as
taken, and what a replay computes). A query that makes `compute` raise, or whose result cannot be encoded, fails alone:
the rest is computed again without it, so that nothing of it is in what `update` is given.

An update that raises leaves a state that may be half changed, and the queries' results have left already: it is told
with an `UpdateError`, which names the queries, and the shard goes back to a version before
(`spillway.agents.core.deaths`). Where an update may raise, the batch is tried on a copy of the state first, and the
queries that raise there alone fail.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spillway.agents.core.actions import Executed, Failed, Result
from spillway.agents.core.deaths import Care
from spillway.agents.live.stage.batch_work import BatchWork
from spillway.agents.live.stateful import bundles
from spillway.agents.live.states import crash_points
from spillway.agents.models.contract import answer_of
from spillway.agents.models.flagged import answered
from spillway.agents.models.inputs import given_inputs
from spillway.agents.models.raised import words_of
from spillway.agents.run.emission import about
from spillway.lineage import reasons
from spillway.lineage.errors import ModelError, WireError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from spillway.agents.core.batching import Batch
    from spillway.agents.core.request import Request
    from spillway.agents.live.stage.guard import Running
    from spillway.agents.models.inputs import Inputs
    from spillway.agents.models.stateful import Machine
    from spillway.agents.run.intake import Signature

    Item = tuple[int, int]  # a query: the place of its request in the batch, and its own in a message of many

_NAMED = 5  # queries in an error's text


class UpdateError(ModelError):
    """An update that raised: its state may be half changed."""


@dataclass(slots=True)
class Computed(Executed):
    """How the computation of a batch went."""

    changes: bool = False  # whether there is an update to run
    guilty: int = 0  # queries whose update raised on a copy


@dataclass(slots=True)
class Updated:
    """How an update went."""

    touched: tuple[str, ...]  # keys of a keyed state
    seconds: float
    error: UpdateError | None = None  # the state may be half changed


class StatefulWork(BatchWork):
    """Computes and updates on a machine; only ever from one thread.

    `placed`: of a stage that publishes its keys' states, tells whether a query is on the partition of its state's key,
    where they are looked up. `control`: of a learner, gives what its queries are computed by beside themselves.
    `declared`: what the truths in a message of many have to fit.
    """

    placed: Callable[[Inputs, int], bool] | None = None
    control: Callable[[], Any] | None = None
    declared: Signature | None = None

    def compute(self, machine: Machine, batch: Batch, *, tried: bool = False) -> Computed:
        """Compute one batch; never raises for what a model or a query does. `tried`: on a copy of the state first."""
        crash_points.at("before-compute")
        requests = batch.requests
        results: list[Result | None] = [None] * len(requests)
        inputs: dict[Item, Inputs] = {}
        failures: dict[Item, Failed] = {}
        for place, request in enumerate(requests):
            if self.guard.care(request) is Care.FAIL:  # nothing of it gets near the state
                results[place] = self.guard.guilty(request)
                continue
            for number, one in self._each(request):
                if isinstance(one, Failed):
                    failures[place, number] = one
                else:
                    inputs[place, number] = one
        guilty = self._rehearse(machine, requests, inputs, failures) if tried and inputs else 0
        began = time.perf_counter()
        seconds, made = self._compute(machine, requests, inputs, failures)
        failed = _by_place(failures)
        for place, request in enumerate(requests):
            if results[place] is None:
                results[place] = made.get(place) or self._result_of(request, failed.get(place, {}), 0.0, len(requests))
        ended = time.monotonic()
        seconds = seconds or time.perf_counter() - began
        crash_points.at("after-compute")
        return Computed([result for result in results if result is not None], seconds, ended, machine.pending, guilty)

    def update(self, machine: Machine, batch: Batch) -> Updated:
        began = time.perf_counter()
        try:
            with self.guard.running(0, batch.requests):
                touched = machine.update()
        except BaseException as error:  # noqa: BLE001 - user code
            return Updated((), time.perf_counter() - began, self._update_error(error, batch.requests))
        return Updated(touched, time.perf_counter() - began)

    def again(self, machine: Machine, requests: Sequence[Request]) -> None:
        """Compute and update what was computed before, with nothing of it to send.

        Raises WireError for parts that cannot be joined; they could be when they were taken. Raises UpdateError, and
        what the model's compute raises: a batch that is recorded cannot be left out.
        """
        machine.compute([given_inputs(self._inputs(request)) for request in requests])
        try:
            machine.update()
        except BaseException as error:
            raise self._update_error(error, requests) from error

    def _inputs(self, request: Request) -> Inputs:
        inputs = super()._inputs(request)
        inputs.control = None if self.control is None else self.control()
        return self._in_place(inputs, request)

    def _in_place(self, inputs: Inputs, request: Request) -> Inputs:
        """Return inputs that came by the partition of their state's key. Raises WireError(BAD_INPUT) for others."""
        if self.placed is not None and not self.placed(given_inputs(inputs), request.partition):
            text = (
                f"partition {request.partition} is not the partition of its state's key; send it with that key, "
                "partitioned by murmur2"
            )
            raise WireError(reasons.BAD_INPUT, text)
        return inputs

    def _each(self, request: Request) -> Iterator[tuple[int, Inputs | Failed]]:
        """Give the inputs of a request, or of each truth in a message of many; or why they cannot be had."""
        delivery = request.parts[0]
        truths = bundles.unseen(delivery) if delivery.truths else [(0, "", None)]
        for number, request_id, told in truths:
            try:
                yield number, self._truth(request, request_id, told) if delivery.truths else self._inputs(request)
            except WireError as error:
                yield number, Failed(error.reason, str(error))
            except BaseException as error:  # noqa: BLE001 - what an author's join returned may raise anything
                words = self._raised.words(error, "reading the inputs", about(request))
                yield number, Failed(reasons.BAD_ROUTE, f"the inputs cannot be read: {words}")

    def _truth(self, request: Request, request_id: str, told: Any) -> Inputs:
        inputs = bundles.inputs_of(request_id, told, None if self.control is None else self.control())
        if self.declared is not None:
            self.declared.check(inputs)
        return self._in_place(inputs, request)

    def rehearse(self, machine: Machine, request: Request) -> None:
        """Compute, encode and update one request for nothing. Raises what the model raises.

        One that a process may have died of is left alone.
        """
        if self.guard.care(request) is not Care.NONE:
            return
        with self.guard.running(0, [request]):
            given = [given_inputs(one) for _, one in self._each(request) if not isinstance(one, Failed)]
            for output in machine.compute(given) if given else ():
                self._result(request, self._plain(output, request), 0.0, 1)
            machine.update()

    # Inside ----------------------------------------------------------------------------------------------------

    def _plain(self, output: Any, request: Request) -> Mapping[str, Any] | Failed:
        """A model's output in values that travel; what the model keeps of it is its own."""
        answer = answer_of(output, words_of)
        return answered(answer) if "outputs" in answer else self.failed(answer, request)

    def _update_error(self, error: BaseException, requests: Sequence[Request]) -> UpdateError:
        queries = [request.request_id for request in requests]
        named = ", ".join(map(repr, queries[:_NAMED])) + (", .." if len(queries) > _NAMED else "")
        words = self._raised.words(error, "update", about(*requests))
        return UpdateError(
            f"stage {self._stage!r}: model {self._model_name!r}: update raised {words} for the queries {named}; the "
            "state may be half changed"
        )

    def _rehearse(
        self, machine: Machine, requests: Sequence[Request], inputs: dict[Item, Inputs], failures: dict[Item, Failed]
    ) -> int:
        """Compute and update on copies; give those a Failed whose update raises alone. How many they are."""
        with self._running(requests, inputs):
            well, _ = _rehearsed(machine, list(inputs.values()))
        if well:
            return 0
        guilty = 0
        for item, one in list(inputs.items()):
            with self._running(requests, [item]):
                _, error = _rehearsed(machine, [one])
            if error is not None:
                words = self._raised.words(error, "update", about(requests[item[0]]))
                failures[item] = Failed(reasons.MODEL_RAISED, f"update raised {words}")
                del inputs[item]
                guilty += 1
        return guilty

    def _compute(
        self, machine: Machine, requests: Sequence[Request], inputs: dict[Item, Inputs], failures: dict[Item, Failed]
    ) -> tuple[float, dict[int, Result]]:
        """Compute until nothing fails any more; seconds of the computation that counts, and results by place."""
        while inputs:
            began = time.perf_counter()
            outputs = self._attempt(machine, requests, inputs)
            seconds = time.perf_counter() - began
            for item, output in outputs.items():
                if not isinstance(output, Failed):
                    outputs[item] = self._plain(output, requests[item[0]])
            failed = {item: one for item, one in outputs.items() if isinstance(one, Failed)}
            if not failed:
                came = _by_place({**failures, **outputs})
                made = {
                    place: self._result_of(requests[place], came[place], seconds, len(requests))
                    for place in _by_place(inputs)
                }
                failed = {item: one for item in inputs if isinstance(one := made[item[0]], Failed)}
                if not failed:
                    return seconds, made
            machine.discard()
            failures |= failed
            for item in failed:
                del inputs[item]
        return 0.0, {}

    def _result_of(self, request: Request, came: Mapping[int, Any], seconds: float, size: int) -> Result:
        """Encode what came of a request, or of each truth in a message of many."""
        delivery = request.parts[0]
        return self._result(request, bundles.results(delivery, came) if delivery.truths else came[0], seconds, size)

    def _running(self, requests: Sequence[Request], items: Iterable[Item]) -> Running:
        return self.guard.running(0, [requests[place] for place in dict.fromkeys(place for place, _ in items)])

    def _attempt(self, machine: Machine, requests: Sequence[Request], inputs: dict[Item, Inputs]) -> dict[Item, Any]:
        """Compute a batch as a whole; where that raises, find whose query it is, and give these a Failed."""
        try:
            with self._running(requests, inputs):
                return dict(zip(inputs, machine.compute([given_inputs(one) for one in inputs.values()]), strict=True))
        except BaseException as error:  # noqa: BLE001 - user code
            failed = about(*(requests[place] for place in _by_place(inputs)))
            failure = Failed(reasons.MODEL_RAISED, self._raised.words(error, about=failed))
        if len(inputs) == 1:
            return dict.fromkeys(inputs, failure)
        guilty: dict[Item, Any] = {}
        for item, one in inputs.items():
            try:
                with self._running(requests, [item]):
                    machine.compute([given_inputs(one)])
                machine.discard()
            except BaseException as error:  # noqa: BLE001 - user code
                words = self._raised.words(error, about=about(requests[item[0]]))
                guilty[item] = Failed(reasons.MODEL_RAISED, words)
        # Where each goes alone and all together do not, nobody can be told from the others.
        return guilty or dict.fromkeys(inputs, failure)


def _by_place(told: Mapping[Item, Any]) -> dict[int, dict[int, Any]]:
    found: dict[int, dict[int, Any]] = {}
    for (place, number), one in told.items():
        found.setdefault(place, {})[number] = one
    return found


def _rehearsed(machine: Machine, inputs: list[Inputs]) -> tuple[bool, BaseException | None]:
    """Whether all went well on a copy; and, if it was the update that did not, what it raised."""
    try:
        error = machine.rehearse([given_inputs(one) for one in inputs])
    except BaseException:  # noqa: BLE001 - user code; it is told when it is computed for good
        return False, None
    return error is None, error
