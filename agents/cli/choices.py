"""Why a variant answered a query, in words: what the flags of an outcome say of the choice (INFaaS, section 4.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from spillway.agents.cli.columns import columns
from spillway.agents.core.routes.variants import WHY
from spillway.topology.quantities import show_duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_RULES: Final = {
    "active": "the least loaded of the active variants that meet the request",
    "marked": "no active variant met the request: one that is overloaded or suffers interference",
    "loading": "no active variant met the request: the query waited for the one that could load and answer soonest",
    "closest": "no serving variant met the request: the one that comes closest",
}
_HEADS: Final = ("variant", "state", "load", "wait", "latency", "accuracy")


def choices(flags: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {stage: told for stage, told in flags.items() if isinstance(told, dict) and WHY in told}


def explained(stage: str, told: Mapping[str, Any]) -> Iterator[str]:
    """The lines that tell of one stage's choice; at most 80 characters where names are short."""
    asked = ", ".join(f"{key} {_asked(key, value)}" for key, value in dict(told.get("asked") or {}).items())
    yield f"{stage}: {told.get('variant')} answered ({told.get('found')})"
    yield f"  asked: {asked or 'nothing in particular'}"
    yield f"  rule: {_RULES.get(str(told.get('found')), 'unknown')}"
    why = told[WHY]
    if why.get("load"):
        yield f"  loaded for it: {why['load']}"
    yield "  met" if told.get("met") else "  not met: too late, or less accurate than asked"
    rows = [_HEADS]
    for name, (state, load, wait, latency, accuracy) in why["of"].items():
        times = show_duration(wait), show_duration(latency)
        rows.append((name, str(state), f"{load:.2f}", *times, f"{accuracy:.4g}"))
    yield from (f"  {line}" for line in columns(rows, range(2, len(_HEADS))))
    if why.get("others"):
        yield f"  and {why['others']} more"


def _asked(key: str, value: Any) -> str:
    if key == "latency":
        return show_duration(float(f"{value:.3g}"))
    return f"{value:.4g}" if isinstance(value, float) else str(value)
