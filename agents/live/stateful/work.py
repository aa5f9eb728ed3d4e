"""What happens to a batch of a stateful stage off the event loop: join, compute, encode; and later the update.

Invariant: an update changes the state by exactly the queries whose results leave (those are what a version records as
taken, and what a replay computes). A query that makes `compute` raise, or whose result cannot be encoded, fails alone:
the rest is computed again without it, so that nothing of it is in what `update` is given.

An update that raises leaves a state that may be half changed, and the queries' results have left already: `UpdateError`
ends the member, and another one takes over from the log, where the update may raise again. The text names the queries.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agents.core.actions import Failed, Result
from agents.live.stage.batch_work import BatchWork, Executed
from agents.live.states import crash_points
from lineage import reasons
from lineage.errors import ModelError, WireError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agents.core.batching import Batch
    from agents.core.request import Request
    from agents.models.inputs import Inputs
    from agents.models.stateful import Machine

_NAMED = 5  # queries in an error's text


class UpdateError(ModelError):
    """An update that raised: its state may be half changed."""


@dataclass(slots=True)
class Computed(Executed):
    """How the computation of a batch went."""

    changes: bool = False  # whether there is an update to run


@dataclass(slots=True)
class Updated:
    """How an update went."""

    touched: tuple[str, ...]  # keys of a keyed state
    seconds: float


class StatefulWork(BatchWork):
    """Computes and updates on a machine; only ever from one thread."""

    def compute(self, machine: Machine, batch: Batch) -> Computed:
        """Compute one batch; never raises for what a model or a query does."""
        crash_points.at("before-compute")
        requests = batch.requests
        results: list[Result | None] = [None] * len(requests)
        inputs: dict[int, Inputs] = {}
        for place, request in enumerate(requests):
            try:
                inputs[place] = self._inputs(request)
            except WireError as error:
                results[place] = Failed(error.reason, str(error))
        began = time.perf_counter()
        seconds = self._compute(machine, requests, inputs, results) if inputs else 0.0
        ended = time.monotonic()
        seconds = seconds or time.perf_counter() - began
        crash_points.at("after-compute")
        return Computed([result for result in results if result is not None], seconds, ended, machine.pending)

    def update(self, machine: Machine, batch: Batch) -> Updated:
        """Let the batch change the state. Raises UpdateError."""
        began = time.perf_counter()
        try:
            touched = machine.update()
        except Exception as error:
            queries = [request.request_id for request in batch.requests]
            named = ", ".join(map(repr, queries[:_NAMED])) + (", .." if len(queries) > _NAMED else "")
            raise UpdateError(
                f"stage {self._stage!r}: model {self._model_name!r}: update raised {type(error).__name__}: {error} for "
                f"the queries {named}; the state may be half changed, so this member ends; unless the model is mended, "
                "the next primary may end by the same queries"
            ) from error
        return Updated(touched, time.perf_counter() - began)

    def again(self, machine: Machine, requests: Sequence[Request]) -> None:
        """Compute and update what was computed before, with nothing of it to send. What the model raises goes through.

        Raises WireError for parts that cannot be joined; they could be when they were taken.
        """
        machine.compute([self._inputs(request) for request in requests])
        machine.update()

    # Inside ----------------------------------------------------------------------------------------------------

    def _compute(
        self,
        machine: Machine,
        requests: Sequence[Request],
        inputs: dict[int, Inputs],
        results: list[Result | None],
    ) -> float:
        """Compute until nothing fails any more; seconds of the computation that counts."""
        while inputs:
            began = time.perf_counter()
            outputs = self._attempt(machine, inputs)
            seconds = time.perf_counter() - began
            failed = {place: one for place, one in outputs.items() if isinstance(one, Failed)}
            if not failed:
                made = {
                    place: self._result(requests[place], output, seconds, len(requests))
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

    def _attempt(self, machine: Machine, inputs: dict[int, Inputs]) -> dict[int, Any]:
        """Compute a batch as a whole; where that raises, find whose query it is, and give these a Failed."""
        try:
            return dict(zip(inputs, machine.compute(list(inputs.values())), strict=True))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - user code
            failure = Failed(reasons.MODEL_RAISED, f"{type(error).__name__}: {error}")
        if len(inputs) == 1:
            return dict.fromkeys(inputs, failure)
        guilty: dict[int, Any] = {}
        for place, one in inputs.items():
            try:
                machine.compute([one])
                machine.discard()
            except (Exception, SystemExit) as error:  # noqa: BLE001 - user code
                guilty[place] = Failed(reasons.MODEL_RAISED, f"{type(error).__name__}: {error}")
        # Where each goes alone and all together do not, nobody can be told from the others.
        return guilty or dict.fromkeys(inputs, failure)
