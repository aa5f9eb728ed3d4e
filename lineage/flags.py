"""Flags: what a result is. They travel from a model's answer with the query to its outcome.

Flags are keyed by the stage that said them, `{"classify": {"confidence": 0.93}}`, so two stages never collide. A stage
passes on the flags that came with its inputs and adds its own; a join, and the gate where several sinks report, merge
what came. A loss has none. What a client says on the ingress is not believed.

Stages' flags are united. Where the same stage's flags come by two branches they are mostly equal, as they parted behind
it; they differ where it ran twice, or was cut on one way. Then each name has its own rule:

    name            what it says                                         at a join
    default         true: the stage's default, no model's answer         true if any says so
    reconstructed   true: decoded from other answers (coding)            true if any says so
    stale           true: from a table that was not up to date           true if any says so
    missing         predecessors whose results a partial join lacked     all of them
    flags_cut       true: flags were left out here, to keep the bounds   true if any says so
    confidence      a number                                             the least
    variant         text: the variant of the model that answered         the least
    members         by member of an ensemble: its answer, and how sure   by member, the least
    rules           of an ensemble: what it went by                      the least
    versions        by table: the version that was looked up             by table, the newest
    keys            by learner or stage: the key that was looked up      by name, the least
    request         text: the query's id, which feedback names           the least
    any other       the model's own                                      the least

The least of equal values is that value. Else it is the first in the order null, false, true, numbers, texts, lists,
maps: as good as the first branch's, and the same whatever came first. So a merge is associative, commutative and
idempotent, until it has to cut.

Bounds: a query has `MAX_BYTES` of flags as JSON text, a stage `MAX_NAMES` names of at most `MAX_NAME` characters. What
is over is left out, the names of the table last, and the stage that does it (or "gate") is flagged `flags_cut`. Nothing
fails for that. What a model says wrongly (a name that is no text, a value that is no JSON, another type than the
table's) fails its query as `bad-result`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from spillway.lineage import reasons
from spillway.lineage.errors import WireError

Flags = dict[str, Any]  # by stage: by name

DEFAULT: Final = "default"
RECONSTRUCTED: Final = "reconstructed"
STALE: Final = "stale"
CUT: Final = "flags_cut"
MISSING: Final = "missing"
VERSIONS: Final = "versions"
KEYS: Final = "keys"
REQUEST: Final = "request"
RULES_OF: Final = "rules"
MAX_BYTES: Final = 4_096
MAX_NAMES: Final = 16
MAX_NAME: Final = 64
_LONG: Final = 1 << 63
_NO_WORKERS_OWN: Final = (DEFAULT, RECONSTRUCTED, STALE)


def _order(value: Any) -> tuple[Any, ...]:
    if value is None or isinstance(value, bool):
        return 0, 0 if value is None else 1 + value
    if isinstance(value, int | float):
        return (1, 1) if value != value else (1, 0, value, isinstance(value, float))  # noqa: PLR0124 - not a number
    if isinstance(value, str):
        return 2, value
    if isinstance(value, list):
        return 3, [_order(each) for each in value]
    if isinstance(value, dict):
        return 4, [(name, _order(value[name])) for name in sorted(value)]
    return 5, repr(value)  # from a writer that is none of ours


def _least(one: Any, other: Any) -> Any:
    return min(one, other, key=_order)


def _most(one: Any, other: Any) -> Any:
    return max(one, other, key=_order)


def _all(one: Any, other: Any) -> Any:
    """All elements of two lists, in order; what is no list gives way to one."""
    lists = [each for each in (one, other) if isinstance(each, list)]
    if len(lists) < 2:  # noqa: PLR2004 - both
        return lists[0] if lists else _least(one, other)
    if one == other:
        return one
    by_text = {json.dumps(each, sort_keys=True): each for each in one + other}
    return [by_text[text] for text in sorted(by_text, key=lambda text: (_order(by_text[text]), text))]


def _each(rule: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Both maps' entries, those of one name by `rule`; what is no map by `rule` as a whole."""

    def merged(one: Any, other: Any) -> Any:
        if not (isinstance(one, dict) and isinstance(other, dict)):
            return rule(one, other)
        both = {name: rule(one[name], other[name]) for name in one.keys() & other.keys()}
        return one | other | both

    return merged


# By name: of which type a value is, and what a join makes of two.
RULES: Final[Mapping[str, tuple[type | tuple[type, ...], Callable[[Any, Any], Any]]]] = {
    DEFAULT: (bool, _most),
    RECONSTRUCTED: (bool, _most),
    STALE: (bool, _most),
    CUT: (bool, _most),
    MISSING: (list, _all),
    "confidence": ((int, float), _least),
    "variant": (str, _least),
    "members": (dict, _each(_least)),
    VERSIONS: (dict, _each(_most)),
    KEYS: (dict, _each(_least)),
    REQUEST: (str, _least),
    RULES_OF: (dict, _least),
}
_OTHER: Final = (object, _least)


def checked(flags: object) -> Flags:
    """A copy, in plain types, of what a model says of an answer. Raises WireError (BAD_RESULT) that names the fault."""
    if not isinstance(flags, Mapping):
        raise WireError(reasons.BAD_RESULT, f"the flags are {type(flags).__name__}, not a mapping of names to values")
    for name in flags:
        if not isinstance(name, str) or len(name) > MAX_NAME:
            raise WireError(
                reasons.BAD_RESULT, f"a flag's name is a text of at most {MAX_NAME} characters, not {name!r:.80}"
            )
    told: Flags = {}
    for name, value in flags.items():
        try:
            text = json.dumps(value, default=_plain, ensure_ascii=False)
            text.encode()
            told[name] = json.loads(text, parse_int=long)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise WireError(reasons.BAD_RESULT, f"flag {name!r} cannot travel: {error}") from error
        wanted = RULES.get(name, _OTHER)[0]
        if not isinstance(told[name], wanted) or (isinstance(told[name], bool) and wanted == (int, float)):
            raise WireError(
                reasons.BAD_RESULT, f"flag {name!r} cannot be {told[name]!r:.80}; see spillway.lineage.flags"
            )
    return told


def _plain(value: Any) -> Any:
    if getattr(value, "ndim", None) == 0:  # a scalar of numpy or torch
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def long(text: str) -> int:
    """Return the integer of a JSON text. Raises ValueError beyond 64 bits, which no message can hold."""
    number = int(text)
    if not -_LONG <= number < _LONG:
        raise ValueError("an int does not fit 64 bits")
    return number


def is_workers_own(flags: Mapping[str, Any] | None) -> bool:
    """Whether an answer that its stage flags so is one that a worker made of this query: it may be cached."""
    return not flags or not any(flags.get(name) for name in _NO_WORKERS_OWN)


def merge(parts: Iterable[Flags]) -> Flags:
    """The flags of a query of which `parts` came. May be one of them: change nothing in it."""
    said = [part for part in parts if part]
    if len(said) <= 1:
        return said[0] if said else {}
    merged: Flags = {}
    for part in said:
        for stage, names in part.items():
            if not isinstance(names, dict):
                continue  # a writer's that is none of ours
            into = merged.setdefault(stage, {})
            for name, value in names.items():
                into[name] = RULES.get(name, _OTHER)[1](into[name], value) if name in into else value
    return merged


def bounded(flags: Flags, where: str) -> Flags:
    """`flags`, or what is left of them within the bounds; `where`: the stage that cuts, or "gate"."""
    if _size(flags) <= MAX_BYTES and all(
        isinstance(names, dict) and len(names) <= MAX_NAMES for names in flags.values()
    ):
        return flags
    kept = cut(where)
    left = MAX_BYTES - _size(kept)
    told = {stage: names for stage, names in flags.items() if isinstance(names, dict)}
    said = [(name not in RULES, stage, name) for stage, names in told.items() for name in names]
    for _, stage, name in sorted(said):
        entry = {stage: {name: flags[stage][name]}}
        size = _size(entry)
        if size <= left and len(kept.get(stage, ())) < MAX_NAMES and not (stage == where and name == CUT):
            kept.setdefault(stage, {}).update(entry[stage])
            left -= size
    return kept


def cut(where: str) -> Flags:
    """The flags of a query that lost its own at `where`."""
    return {where: {CUT: True}}


def is_cut(flags: Flags) -> bool:
    return bool(flags) and any(isinstance(names, dict) and CUT in names for names in flags.values())


def _size(flags: Flags) -> int:
    return len(json.dumps(flags, default=repr, ensure_ascii=False).encode("utf-8", "replace"))
