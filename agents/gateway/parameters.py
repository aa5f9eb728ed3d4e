"""Parameters of a request that Spillway itself goes by, and those of an answer that tell what became of the query."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from spillway.agents.gateway.bodies import bad
from spillway.lineage import headers
from spillway.lineage.errors import UsageError
from spillway.lineage.limits import DEFAULT_LIMITS, Limits
from spillway.lineage.tokens import Token
from spillway.lineage.values.json_text import read_value, show_outcome
from spillway.lineage.values.plain import LONG_MOST
from spillway.producers.client.queries import asked
from spillway.topology.quantities import shown
from spillway.topology.variants.needs import PARAMETERS as NEEDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spillway.lineage.message import Outcome, Value

OFFLINE: Final = headers.OFFLINE.decode()
_MICRO: Final = 1e6
_dumps: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Ask(NamedTuple):
    """What the parameters of a request ask."""

    deadline: float | None  # seconds; None: the pipeline's SLO
    key: str | None
    after: Token | None
    priority: str | None  # `offline`, or None
    own: dict[str, Value]  # the query's own parameters, for its models


def ask_of(parameters: Mapping[str, Any], limits: Limits = DEFAULT_LIMITS, *, needs: bool = False) -> Ask:
    """Split the parameters of a request: `timeout` (microseconds; 0: none), `key`, `after`, `priority`, and the rest.

    `needs`: the pipeline has variants. What the query needs of them is checked and stays among its own parameters; its
    `latency` is the deadline where there is no timeout. Raises WireError(BAD_INPUT) that names the parameter.
    """
    own = dict(parameters)
    timeout, key = own.pop("timeout", 0), own.pop("key", None)
    after, priority = own.pop("after", None), own.pop("priority", None)
    if type(timeout) is not int or not 0 <= timeout <= LONG_MOST:
        raise bad(f"parameter 'timeout': must be a whole number of microseconds, not {shown(timeout)}")
    if key is not None and (not isinstance(key, str) or not key):
        raise bad(f"parameter 'key': must be a text, not {shown(key)}; put it in quotes")
    if priority not in (None, 0, OFFLINE) or isinstance(priority, bool | float):
        raise bad(f"parameter 'priority': must be {OFFLINE!r}, or left out, not {shown(priority)}")
    try:
        token = None if after is None else Token.parse(after if isinstance(after, str) else repr(after))
        deadline = asked(**{name: own[name] for name in NEEDS if name in own})[1] if needs else None
    except UsageError as error:
        raise bad(f"parameters: {error}") from error
    read = {name: read_value(value, f"parameter {name!r:.80}", limits) for name, value in own.items()}
    return Ask(timeout / _MICRO if timeout else deadline, key, token, priority or None, read)


def answer_parameters(outcome: Outcome, request_id: str) -> dict[str, str | float]:
    """Return what an outcome tells besides its outputs, as parameters of an answer.

    They are texts, numbers and booleans, as the protocol has it: flags and timings are JSON in a text, as in
    docs/clients.md. What an outcome lacks is left out.
    """
    latency = outcome.latency or 0.0
    told = show_outcome(outcome, request_id, latency, late=outcome.late, outputs=False)
    told["latency_ms"] = told["latency_ms"] if math.isfinite(latency) else None
    return {
        name: _dumps(value) if isinstance(value, dict | list) else value
        for name, value in told.items()
        if name != "text" and (value or isinstance(value, bool | float))
    }
