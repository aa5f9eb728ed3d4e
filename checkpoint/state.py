"""What a stateful model's state is: a mapping of names to tensors and small values, nested as the model likes.

Invariants:

* A state is its leaves, in order: tensors (torch's, numpy's, whatever speaks DLPack; numpy's scalars too) and small
  values. Mappings, lists and tuples that hold tensors are flattened by path (`spillway.checkpoint.names`), so an
  optimizer's `state_dict()` is a state as it is; one without tensors in it is a small value of its own.
* `unflatten` gives back what `flatten` was given, bit for bit: keys, order, types of containers, dtypes, shapes, NaNs.
  What comes back otherwise: subclasses of dict as dict, tensors on the CPU and without `requires_grad`, byte orders as
  little-endian.
* What cannot be encoded is refused when it is first seen, by an error that names the entry and the fix.

A keyed state is a mapping of keys (streams, users) to states.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from spillway.checkpoint import arrays, names, small_values
from spillway.checkpoint.small_values import MAX_SMALL_BYTES, UnfitError
from spillway.lineage.errors import CheckpointError
from spillway.lineage.replication import DIGEST_BYTES, VALUE, Entry
from spillway.lineage.values.replication import CONTENTS_LIMITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

MAX_ENTRIES: Final = CONTENTS_LIMITS.max_entries
MAX_NAME_BYTES: Final = CONTENTS_LIMITS.max_name_bytes
MAX_KEY_BYTES: Final = 512
_MAX_NESTING: Final = 12


class StateError(CheckpointError):
    """A state that cannot be kept; the text names the entry and the fix."""


@dataclass(slots=True)
class Flat:
    """A state's leaves. The tensors are the state's own memory (where it can be seen without a copy)."""

    entries: tuple[Entry, ...]
    tensors: list[arrays.Array]  # of the entries that are tensors, in order
    leaves: list[Any]  # the same as the state has them
    values: dict[str, Any]  # copies, as Avro has them, by entry

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)


def flatten(state: Mapping[Any, Any], what: str = "the state", on_host: Callable[[Any], Any] | None = None) -> Flat:
    """The leaves of a state. Raises StateError for the first that cannot be kept.

    `on_host` gives the tensor to look at in place of one, if its bytes are on their way from elsewhere.
    """
    if not hasattr(state, "items"):
        raise StateError(f"{what} is a {type(state).__name__}: give a mapping of names to tensors and small values")
    flat, entries, small = Flat((), [], [], {}), [], 0
    for name, leaf in leaves(state, what=what):
        try:
            entry, size = _take(flat, name, leaf if on_host is None else on_host(leaf))
            small = _bounded(small + size, name)
        except (UnfitError, UnicodeEncodeError) as error:
            raise StateError(f"{what}, entry {name!r:.200}: {error}") from error
        entries.append(entry)
    if len(entries) > MAX_ENTRIES:
        raise StateError(
            f"{what} has {len(entries)} entries, over the limit of {MAX_ENTRIES}: stack tensors into fewer entries"
        )
    flat.entries = tuple(entries)
    return flat


def unflatten(entries: Iterable[Entry], tensors: Iterable[arrays.Array], values: Mapping[str, Any]) -> dict[Any, Any]:
    """The state with these leaves; the tensors are those of the entries that are some, in order."""
    following = iter(tensors)
    return names.nested(
        (
            entry.name,
            small_values.unpack(values[entry.name]) if entry.kind == VALUE else arrays.given(entry, next(following)),
        )
        for entry in entries
    )


def of_key(key: Any) -> str:
    """How errors name the state of a key. Raises StateError for what can be no key."""
    if not isinstance(key, str) or not key or len(key.encode("utf-8", "replace")) > MAX_KEY_BYTES:
        raise StateError(f"{key!r:.80} cannot be a key of a state: use a text of 1 to {MAX_KEY_BYTES} bytes")
    return f"the state of key {key!r:.80}"


def digest(state: Mapping[Any, Any]) -> bytes:
    """A hash of everything in a state, by which a replay is compared with it bit for bit.

    It does not know tuples from lists, torch's tensors from numpy's, or the order of entries.
    """
    flat = flatten(state)
    tensors = iter(flat.tensors)
    parts = []
    for entry in flat.entries:
        hashed = hashlib.blake2b(digest_size=DIGEST_BYTES)
        name = entry.name.replace("(", "[").replace(")", "]")
        hashed.update(repr((name, entry.dtype, entry.shape)).encode())
        if entry.kind == VALUE:
            hashed.update(repr(_like(small_values.unpack(flat.values[entry.name]))).encode())
        else:
            hashed.update(arrays.flat(next(tensors)).data)
        parts.append(hashed.digest())
    return hashlib.blake2b(b"".join(sorted(parts)), digest_size=DIGEST_BYTES).digest()


def _take(flat: Flat, name: str, leaf: Any) -> tuple[Entry, int]:
    if not arrays.is_array(leaf):
        flat.values[name], size = small_values.pack(leaf)
        return Entry(name, VALUE, "", ()), size
    kind, dtype, array = arrays.seen(leaf)
    flat.tensors.append(array)
    flat.leaves.append(leaf)
    return Entry(name, kind, dtype, array.shape), 0


def _bounded(small: int, name: str) -> int:
    if small > MAX_SMALL_BYTES:
        raise UnfitError(
            f"the small values take over {MAX_SMALL_BYTES} bytes in total: keep it as a tensor or an array"
        )
    if len(name.encode()) > MAX_NAME_BYTES:
        raise UnfitError(f"its name is over {MAX_NAME_BYTES} bytes: use shorter keys")
    return small


def leaves(node: Any, path: str = "", what: str = "the state", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Every leaf with its name: what holds no tensor is a leaf, but the state itself is none. Raises StateError."""
    if depth > _MAX_NESTING:
        raise StateError(f"{what}, entry {path!r:.200}: it is nested more than {_MAX_NESTING} deep; flatten it")
    if hasattr(node, "items") and hasattr(node, "keys"):
        for key, child in node.items():
            if isinstance(key, bool) or not isinstance(key, (str, int)):
                raise StateError(f"{what}, entry {path!r:.200}: the key {key!r:.80} is neither a text nor an integer")
            yield from _down(child, f"{path}/{names.of_key(key)}" if path else names.of_key(key), what, depth)
        return
    if hasattr(node, "_fields"):
        raise StateError(
            f"{what}, entry {path!r:.200}: a named tuple would be restored as a plain tuple; use a mapping"
        )
    container = list if isinstance(node, list) else tuple
    for at, child in enumerate(node):
        yield from _down(child, f"{path}/{names.of_item(container, at)}", what, depth)


def _down(child: Any, path: str, what: str, depth: int) -> Iterator[tuple[str, Any]]:
    if _holds_tensors(child, depth):
        yield from leaves(child, path, what, depth + 1)
    else:
        yield path, child


def _holds_tensors(node: Any, depth: int) -> bool:
    if depth > _MAX_NESTING or arrays.is_array(node):
        return False
    if isinstance(node, (list, tuple)):
        children: Iterable[Any] = node
    elif hasattr(node, "items") and hasattr(node, "keys"):
        children = node.values()
    else:
        return False
    return any(arrays.is_array(child) or _holds_tensors(child, depth + 1) for child in children)


def _like(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_like(item) for item in value]
    if isinstance(value, dict):
        return sorted((repr(key), _like(item)) for key, item in value.items())
    return value
