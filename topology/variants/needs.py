"""What a query asks of an application: a latency and an accuracy, or a model, or one variant (INFaaS, Table 4).

needs_of({"latency": "200ms", "accuracy": "70%"}, app="faces")
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from spillway.lineage.errors import UsageError
from spillway.topology import names
from spillway.topology.quantities import duration, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

PARAMETERS: Final = ("app", "latency", "accuracy", "model", "variant")
_PERCENT: Final = 100.0


class Needs(NamedTuple):
    """What a query needs; what it does not name it does not mind."""

    app: str
    latency: float | None = None  # seconds
    accuracy: float = 0.0  # from 0 to 1
    model: str | None = None  # an architecture
    variant: str | None = None


def named(needs: Needs) -> dict[str, float | str]:
    """What a query asks, without what it does not mind; the latency in seconds."""
    asked: dict[str, float | str | None] = {"latency": needs.latency, "accuracy": needs.accuracy or None}
    asked |= {"model": needs.model, "variant": needs.variant}
    return {key: value for key, value in asked.items() if value is not None}


def needs_of(parameters: Mapping[str, object], app: str | None = None) -> Needs:
    """What the parameters of a query ask, of the application `app` where they name none.

    Raises UsageError that names the parameter and the fix.
    """
    unknown = sorted(set(parameters) - set(PARAMETERS))
    if unknown:
        raise UsageError(f"a query has no parameter {unknown[0]!r:.80}; {names.meant(unknown[0], PARAMETERS)}")
    named = {key: _text(key, parameters[key]) for key in ("app", "model", "variant") if key in parameters}
    asked = named.get("app", app)
    if asked is None:
        raise UsageError("the query names no application; give 'app'")
    if app is not None and asked != app:
        raise UsageError(f"app: this stage answers for {app!r}, not for {asked!r:.80}")
    if "model" in named and "variant" in named:
        raise UsageError("a query names a model or a variant, not both; leave one of 'model' and 'variant' out")
    if "accuracy" in parameters and not named.keys().isdisjoint(("model", "variant")):
        raise UsageError(
            "accuracy: a query that names a model or variant gets that one's accuracy; leave 'accuracy' out"
        )
    return Needs(
        asked,
        _latency(parameters["latency"]) if "latency" in parameters else None,
        _accuracy(parameters["accuracy"]) if "accuracy" in parameters else 0.0,
        named.get("model"),
        named.get("variant"),
    )


def _text(key: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{key}: must be a name, not {shown(value)}")
    return value


def _latency(value: object) -> float:
    try:
        seconds = duration(float(value) if isinstance(value, str) and _is_number(value) else value)
    except ValueError as error:
        raise UsageError(f"latency: {error}") from error
    if seconds <= 0:
        raise UsageError(f"latency: must be more than 0, not {value!r:.40}")
    return seconds


def _accuracy(value: object) -> float:
    text = value.strip() if isinstance(value, str) else value
    percent = isinstance(text, str) and text.endswith("%")
    text = text[:-1] if isinstance(text, str) and percent else text
    if isinstance(text, bool) or not isinstance(text, (str, int, float)) or not _is_number(text):
        raise UsageError(f"accuracy: must be a share, as 0.7 or '70%', not {shown(value)}")
    share = float(text) / (_PERCENT if percent else 1.0)
    if not 0.0 <= share <= 1.0:
        raise UsageError(f"accuracy: must be from 0 to 1, or a percentage, as 0.7 or '70%', not {value!r:.40}")
    return share


def _is_number(value: str | float) -> bool:
    try:
        return math.isfinite(float(value))
    except (ValueError, OverflowError):
        return False
