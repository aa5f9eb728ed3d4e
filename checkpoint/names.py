"""Names of a state's leaves: their paths in nested mappings, lists and tuples, as texts that give the nesting back.

A part of a path is a string key (escaped, so that no key looks like anything else), `#3` for the integer key 3,
`[3]` for a place in a list, `(3)` for one in a tuple; parts are joined by `/`. So `optimizer/state/#0/exp_avg` is what
torch's Adam keeps for its first parameter, and `hidden/(1)` an LSTM's cell state.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from spillway.lineage.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterable

_ESCAPES: Final = {"~": "~0", "/": "~1", "[": "~2", "(": "~3", "#": "~4"}
_RAW: Final = {escaped: raw for raw, escaped in _ESCAPES.items()}
_EMPTY: Final = "~5"
_PLACE: Final = re.compile(r"\[(\d+)\]|\((\d+)\)|#(-?\d+)", re.ASCII)


class Place(NamedTuple):
    """One part of a path."""

    container: type  # dict, list or tuple
    key: Any


def of_key(key: str | int) -> str:
    if isinstance(key, int):
        return f"#{key}"
    if not key:
        return _EMPTY
    if "~" in key or "/" in key:
        key = key.replace("~", "~0").replace("/", "~1")
    return _ESCAPES[key[0]] + key[1:] if key[0] in "[(#" else key


def of_item(container: type, at: int) -> str:
    return f"[{at}]" if container is list else f"({at})"


def places(name: str) -> list[Place]:
    """The parts of a name. Raises CheckpointError for one that no state gives."""
    return [_place(part, name) for part in name.split("/")]


def nested(leaves: Iterable[tuple[str, Any]]) -> dict[Any, Any]:
    """The state whose leaves have these names, in this order. Raises CheckpointError where they contradict."""
    root: tuple[type, dict[Any, Any]] = (dict, {})
    for name, leaf in leaves:
        node = root
        path = places(name)
        for place, following in zip(path, [*path[1:], None], strict=True):
            if place.container is not node[0]:
                raise CheckpointError(
                    f"the entry {name!r} of a state contradicts another entry; the manifest is damaged"
                )
            if following is None:
                if place.key in node[1]:
                    raise CheckpointError(f"the entry {name!r} of a state is listed twice; the manifest is damaged")
                node[1][place.key] = _Leaf(leaf)
            else:
                inner = node[1].setdefault(place.key, (following.container, {}))
                if isinstance(inner, _Leaf):
                    raise CheckpointError(f"the entry {name!r} of a state lies within another; the manifest is damaged")
                node = inner
    made: dict[Any, Any] = _made(root)
    return made


class _Leaf(NamedTuple):
    value: Any


def _made(node: Any) -> Any:
    if isinstance(node, _Leaf):
        return node.value
    container, children = node
    if container is dict:
        return {key: _made(child) for key, child in children.items()}
    if sorted(children) != list(range(len(children))):
        raise CheckpointError(f"a {container.__name__} in a state lacks some of its indexes; the manifest is damaged")
    return container(_made(children[at]) for at in range(len(children)))


def _place(part: str, name: str) -> Place:
    if part and part[0] in "[(#":
        match = _PLACE.fullmatch(part)
        if match is None:
            raise CheckpointError(f"{name!r} is not the name of a state's entry; the manifest is damaged")
        if match[3] is not None:
            return Place(dict, int(match[3]))
        return Place(list, int(match[1])) if match[1] is not None else Place(tuple, int(match[2]))
    if part == _EMPTY:
        return Place(dict, "")
    return Place(dict, re.sub("~[0-4]", lambda found: _RAW[found[0]], part) if "~" in part else part)
