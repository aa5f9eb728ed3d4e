"""Messages of many truths: one record of a learner's input, one outcome, and in it what came of each truth.

    headers   spillway-truths: the truths' ids, between spaces (`spillway.lineage.headers`)
    inputs    truths: [{"key": text, "inputs": {..}, "flags": text of JSON, may be missing}, ..], in that order
    outcome   results: [{"outputs": {..}}, or {"reason": .., "text": ..}, or {} for one that came before, ..]

The model is given each as a query of its own, those of a batch all at once. Each counts once, by its id, in whichever
message it comes, and one that cannot be taken fails alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway.agents.core.actions import Failed
from spillway.agents.models.inputs import Inputs
from spillway.lineage import flags, reasons
from spillway.lineage.errors import WireError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spillway.agents.core.request import Delivery


def unseen(delivery: Delivery) -> Iterator[tuple[int, str, Any]]:
    """Give the place, the id and the value of each truth that did not come before."""
    told = delivery.payload.message.inputs["truths"]
    for place, request_id in enumerate(delivery.truths):
        if place not in delivery.repeated:
            yield place, request_id, told[place]


def inputs_of(request_id: str, told: Any, control: Any) -> Inputs:
    """Return what the model is given of a truth. Raises WireError(BAD_INPUT) for what is none."""
    inputs, key = (told.get("inputs"), told.get("key")) if isinstance(told, dict) else (None, None)
    if not isinstance(inputs, dict) or not isinstance(key, str):
        raise WireError(reasons.BAD_INPUT, 'a truth must be {"key": text, "inputs": {..}}, maybe with "flags"')
    if "flags" in told:
        inputs = {**inputs, "flags": flags.read(told["flags"])}
    return Inputs(inputs, {}, request_id, key, control)


def results(delivery: Delivery, came: Mapping[int, Mapping[str, Any] | Failed]) -> dict[str, Any]:
    """Return the outputs of a message's outcome, from what came of each of its truths, by place."""
    told: list[dict[str, Any]] = [{} for _ in delivery.truths]
    for place, one in came.items():
        failed = isinstance(one, Failed)
        told[place] = {"reason": one.reason, "text": one.text} if failed else {"outputs": one}  # type: ignore[union-attr]
    return {"results": told}
