"""Messages of many truths: one record of a learner's input, one outcome, and in it the outcome of each truth.

    headers   spillway-truths: the truths' ids, between spaces (`spillway.lineage.headers`)
    inputs    truths: [{"key": text, "inputs": {..}, "flags": text of JSON, may be missing}, ..], in that order
    outcome   results: [an encoded outcome, or nothing for a truth that came before, ..]

Each is a request of its own to the model, counts once by its id, in whichever message it comes, and fails alone.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from spillway.agents.core.actions import Failed, Ok
from spillway.agents.core.request import Delivery, Loss, Request
from spillway.agents.run.emission import Carried
from spillway.lineage import flags, headers, reasons
from spillway.lineage.errors import WireError
from spillway.lineage.message import FAILED, PREDICTION, Outcome, Query
from spillway.lineage.values.codec import encode_outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from spillway.agents.core.actions import Result
    from spillway.lineage.limits import Limits

_MOST_FLAGS: Final = 4 * flags.MAX_BYTES  # characters
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_ENVELOPE: Final = 4096  # bytes of an outcome beside its results


def divide(delivery: Delivery, ids: Sequence[str], check: Callable[[dict[str, Any]], None] | None) -> list[Delivery]:
    """Return a delivery for each truth in a message, whose inputs `check` may refuse. Raises WireError(BAD_INPUT)."""
    record = delivery.payload.record
    told = delivery.payload.message.inputs.get("truths")
    if not ids or not isinstance(told, list) or len(told) != len(ids):
        text = f"a message of truths has 1 to {headers.MOST_TRUTHS} ids in {headers.TRUTHS}, and 'truths', as many"
        raise WireError(reasons.BAD_INPUT, text)
    truths = []
    for one, each in zip(ids, told, strict=True):
        key, inputs, unusable = "", dict[str, Any](), None
        try:
            key, inputs = _read(each)
            if check is not None:
                check(inputs)
        except WireError as error:
            unusable = Loss(FAILED, error.reason, str(error))
        own = replace(record, key=key.encode(), value=None, headers=())
        payload = Carried(own, delivery.payload.headers, Query(inputs, {}))
        truths.append(replace(delivery, request_id=one, payload=payload, unusable=unusable, ids=()))
    return truths


def _read(told: Any) -> tuple[str, dict[str, Any]]:
    key, inputs = (told.get("key"), told.get("inputs")) if isinstance(told, dict) else (None, None)
    if not isinstance(key, str) or not isinstance(inputs, dict):
        raise WireError(reasons.BAD_INPUT, 'a truth must be {"key": text, "inputs": {..}}, maybe with "flags"')
    if "flags" in told:
        inputs = {**inputs, "flags": _read_flags(told["flags"])}
    return key, inputs


def _read_flags(text: Any) -> dict[str, Any]:
    """Return flags as they came with their outcome: no more than messages can hold."""
    try:
        if isinstance(text, str) and len(text) <= _MOST_FLAGS and not _SURROGATE.search(text):
            said = json.loads(text, parse_int=flags.long)
            if isinstance(said, dict):
                return said
    except (ValueError, RecursionError):
        pass
    raise WireError(
        reasons.BAD_INPUT, f"the flags must be a JSON object, as a text of at most {_MOST_FLAGS} characters"
    )


def opened(requests: Sequence[Request]) -> list[Request]:
    """Return requests with each truth that did not come before in place of its message."""
    found: list[Request] = []
    for request in requests:
        delivery = request.parts[0]
        if not delivery.truths:
            found.append(request)
        for place, each in enumerate(delivery.truths):
            if place not in delivery.repeated:
                found.append(replace(request, request_id=each.request_id, parts=(each,)))
    return found


def closed(requests: Sequence[Request], results: Sequence[Result], stage: str, limits: Limits) -> list[Result]:
    """Return the result of each request, from those of all that they were opened to."""
    left = iter(results)
    return [_message(request, left, stage, limits) if request.parts[0].truths else next(left) for request in requests]


def _message(request: Request, left: Iterator[Result], stage: str, limits: Limits) -> Result:
    """Encode the outcomes of a message's truths; of what does not fit into one message there are no outputs."""
    delivery, told, room = request.parts[0], [], limits.max_message_bytes - _ENVELOPE
    for place in range(len(delivery.truths)):
        value = b""
        if place not in delivery.repeated:
            result = next(left)
            if isinstance(result, Failed):
                value = encode_outcome(Outcome(FAILED, reason=result.reason, text=result.text, stage=stage), limits)
            elif len(value := result.payloads[None]) > room // (len(delivery.truths) - place):
                value = encode_outcome(Outcome(PREDICTION, stage=stage), limits)
        told.append(value)
        room -= len(value)
    return Ok({None: encode_outcome(Outcome(PREDICTION, {"results": told}, stage=stage), limits)})
