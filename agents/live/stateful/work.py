"""What happens to a batch of a stateful stage off the event loop: join, compute, encode; and later the update.

Invariant: an update changes the state by exactly the queries whose results leave (those are what a version records as
taken, and what a replay computes). A query that makes `compute` raise, or whose result cannot be encoded, fails alone:
the rest is computed again without it, so that nothing of it is in what `update` is given.

An update that raises leaves a state that may be half changed, and the queries' results have left already: it is told
with an `UpdateError`, which names the queries, and the shard goes back to a version before
(`spillway.agents.core.crash_suspects`). Where an update may raise, the batch is tried on a copy of the state first, and
the queries that raise there alone fail.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from spillway.agents.core.actions import Failed, Result
from spillway.agents.core.crash_suspects import Care
from spillway.agents.live.stage.batch_work import BatchWork
from spillway.agents.models.contract import answer_of
from spillway.agents.models.flagged import answered
from spillway.agents.models.inputs import given_inputs
from spillway.agents.models.model_errors import words_of
from spillway.agents.run import crash_points
from spillway.agents.run.emission import about
from spillway.agents.run.shard_context import Computed, Updated, UpdateError
from spillway.agents.run.truths import closed, opened
from spillway.lineage import reasons
from spillway.lineage.errors import WireError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from spillway.agents.core.batching import Batch
    from spillway.agents.core.request import Request
    from spillway.agents.models.inputs import Inputs
    from spillway.agents.models.stateful import Machine

_NAMED = 5  # queries in an error's text


class StatefulWork(BatchWork):
    """Computes and updates on a machine; only ever from one thread.

    `placed`: of a stage that publishes its keys' states, tells whether a query is on the partition of its state's key,
    where they are looked up. `control`: of a learner, gives what its queries are computed by beside themselves.
    """

    placed: Callable[[Inputs, int], bool] | None = None
    control: Callable[[], Any] | None = None

    def compute(self, machine: Machine, batch: Batch, *, tried: bool = False) -> Computed:
        """Compute one batch; never raises for what a model or a query does. `tried`: on a copy of the state first."""
        crash_points.at("before-compute")
        requests = opened(batch.requests)
        results: list[Result | None] = [None] * len(requests)
        inputs: dict[int, Inputs] = {}
        for place, request in enumerate(requests):
            if self.guard.care(request) is Care.FAIL:  # nothing of it gets near the state
                results[place] = self.guard.guilty(request)
                continue
            try:
                inputs[place] = self._inputs(request)
            except WireError as error:
                results[place] = Failed(error.reason, str(error))
            except BaseException as error:  # noqa: BLE001 - what an author's join returned may raise anything
                words = self._raised.words(error, "reading the inputs", about(request))
                results[place] = Failed(reasons.BAD_ROUTE, f"the inputs cannot be read: {words}")
        guilty = self._rehearse(machine, requests, inputs, results) if tried and inputs else 0
        began = time.perf_counter()
        seconds = self._compute(machine, requests, inputs, results) if inputs else 0.0
        ended = time.monotonic()
        seconds = seconds or time.perf_counter() - began
        crash_points.at("after-compute")
        made = closed(batch.requests, [each for each in results if each is not None], self._stage, self._limits)
        return Computed(made, seconds, ended, machine.pending, guilty)

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
        if (loss := request.parts[0].unusable) is not None:  # a truth's
            raise WireError(loss.reason, loss.text)
        inputs = super()._inputs(request)
        inputs.control = None if self.control is None else self.control()
        if self.placed is not None and not self.placed(given_inputs(inputs), request.partition):
            text = (
                f"partition {request.partition} is not the partition of its state's key; send it with that key, "
                "partitioned by murmur2"
            )
            raise WireError(reasons.BAD_INPUT, text)
        return inputs

    def rehearse(self, machine: Machine, request: Request) -> None:
        """Compute, encode and update one request for nothing. Raises what the model and the author's join raise.

        One that a process may have died of is left alone.
        """
        if self.guard.care(request) is not Care.NONE:
            return
        request = opened([request])[0]
        with self.guard.running(0, [request]):
            (output,) = machine.compute([given_inputs(self._inputs(request))])
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
        self, machine: Machine, requests: Sequence[Request], inputs: dict[int, Inputs], results: list[Result | None]
    ) -> int:
        """Compute and update on copies; give those a Failed whose update raises alone. How many they are."""
        with self.guard.running(0, [requests[place] for place in inputs]):
            well, _ = _rehearsed(machine, list(inputs.values()))
        if well:
            return 0
        guilty = 0
        for place, one in list(inputs.items()):
            with self.guard.running(0, [requests[place]]):
                _, error = _rehearsed(machine, [one])
            if error is not None:
                words = self._raised.words(error, "update", about(requests[place]))
                results[place] = Failed(reasons.MODEL_RAISED, f"update raised {words}")
                del inputs[place]
                guilty += 1
        return guilty

    def _compute(
        self, machine: Machine, requests: Sequence[Request], inputs: dict[int, Inputs], results: list[Result | None]
    ) -> float:
        """Compute until nothing fails any more; seconds of the computation that counts."""
        while inputs:
            began = time.perf_counter()
            outputs = self._attempt(machine, requests, inputs)
            seconds = time.perf_counter() - began
            failed = {place: one for place, one in outputs.items() if isinstance(one, Failed)}
            if not failed:
                made = {
                    place: self._result(requests[place], self._plain(output, requests[place]), seconds, len(requests))
                    for place, output in outputs.items()
                }
                failed = {place: one for place, one in made.items() if isinstance(one, Failed)}
                if not failed:
                    for place, result in made.items():
                        results[place] = result
                    return seconds
            machine.discard()
            for place, failure in failed.items():
                results[place] = failure
                del inputs[place]
        return 0.0

    def _attempt(self, machine: Machine, requests: Sequence[Request], inputs: dict[int, Inputs]) -> dict[int, Any]:
        """Compute a batch as a whole; where that raises, find whose query it is, and give these a Failed."""
        try:
            with self.guard.running(0, [requests[place] for place in inputs]):
                return dict(zip(inputs, machine.compute([given_inputs(one) for one in inputs.values()]), strict=True))
        except BaseException as error:  # noqa: BLE001 - user code
            failed = about(*(requests[place] for place in inputs))
            failure = Failed(reasons.MODEL_RAISED, self._raised.words(error, about=failed))
        if len(inputs) == 1:
            return dict.fromkeys(inputs, failure)
        guilty: dict[int, Any] = {}
        for place, one in inputs.items():
            try:
                with self.guard.running(0, [requests[place]]):
                    machine.compute([given_inputs(one)])
                machine.discard()
            except BaseException as error:  # noqa: BLE001 - user code
                words = self._raised.words(error, about=about(requests[place]))
                guilty[place] = Failed(reasons.MODEL_RAISED, words)
        # Where each goes alone and all together do not, nobody can be told from the others.
        return guilty or dict.fromkeys(inputs, failure)


def _rehearsed(machine: Machine, inputs: list[Inputs]) -> tuple[bool, BaseException | None]:
    """Whether all went well on a copy; and, if it was the update that did not, what it raised."""
    try:
        error = machine.rehearse([given_inputs(one) for one in inputs])
    except BaseException:  # noqa: BLE001 - user code; it is told when it is computed for good
        return False, None
    return error is None, error
