"""A version's whole state as a safetensors file, and back: its shared part, and the states of its keys.

Layout, beyond that of `spillway.checkpoint.safetensors`: an entry of the shared part has its own name
(`model/layer.weight`), one of the state of key `u7` is `~keys/u7/<name>`; keys are escaped as names are, and no name of
an entry begins with `~k`. The metadata text `spillway.keys` lists all keys as JSON, those without entries too, and is
there only of a keyed state. What comes back is what went in, bit for bit; only torch's tensors need torch to be
imported for that.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from spillway.checkpoint import names, safetensors
from spillway.checkpoint.state import flatten, of_key, unflatten
from spillway.lineage.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spillway.checkpoint.arrays import Array
    from spillway.lineage.replication import Entry

    Keyed = Mapping[str, Mapping[Any, Any]]

MAX_TENSORS: Final = 4_000_000
_KEYS: Final = "spillway.keys"
_PREFIX: Final = "~keys/"


def written(
    state: Mapping[Any, Any], keyed: Keyed | None = None, metadata: Mapping[str, str] | None = None
) -> Iterator[bytes]:
    """The file's bytes, piece by piece. Raises CheckpointError, StateError for what the format or a state lacks."""
    entries: list[Entry] = []
    tensors: list[Array] = []
    values: dict[str, Any] = {}
    parts = {"": flatten(state)}
    parts |= {f"{_PREFIX}{names.of_key(key)}/": flatten(each, of_key(key)) for key, each in (keyed or {}).items()}
    for prefix, flat in parts.items():
        entries += [entry._replace(name=prefix + entry.name) for entry in flat.entries]
        tensors += flat.tensors
        values |= {prefix + name: value for name, value in flat.values.items()}
    told = dict(metadata or {}) | ({_KEYS: json.dumps(list(keyed))} if keyed is not None else {})
    return safetensors.written(entries, tensors, values, told)


def read(data: bytes | memoryview) -> tuple[dict[Any, Any], dict[str, dict[Any, Any]] | None, dict[str, str]]:
    """The state in a file's bytes, the states of its keys if it has some, and further texts. Raises CheckpointError."""
    leaves = safetensors.read(data, most=MAX_TENSORS)
    keys = _keys(leaves.metadata.pop(_KEYS, None))
    if keys is None:
        return unflatten(leaves.entries, leaves.tensors, leaves.values), None, leaves.metadata
    parts: dict[str, list[Entry]] = {"": [], **{names.of_key(key): [] for key in keys}}
    arrays: dict[str, list[Array]] = {part: [] for part in parts}
    values: dict[str, dict[str, Any]] = {part: {} for part in parts}
    following = iter(leaves.tensors)
    for entry in leaves.entries:
        part, name = _parted(entry.name)
        if part not in parts:
            raise CheckpointError(f"the file has an entry {entry.name!r:.80} of a key that the file does not list")
        parts[part].append(entry._replace(name=name))
        if entry.dtype:
            arrays[part].append(next(following))
        else:
            values[part][name] = leaves.values[entry.name]
    made = {part: unflatten(entries, arrays[part], values[part]) for part, entries in parts.items()}
    return made[""], {key: made[names.of_key(key)] for key in keys}, leaves.metadata


def _parted(name: str) -> tuple[str, str]:
    if not name.startswith(_PREFIX):
        return "", name
    part, slash, rest = name.removeprefix(_PREFIX).partition("/")
    if not slash or not part or not rest:
        raise CheckpointError(f"the file has an entry {name!r:.80} that belongs to no key")
    return part, rest


def _keys(text: str | None) -> list[str] | None:
    if text is None:
        return None
    try:
        keys = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"the list of keys in the file's metadata is not JSON ({str(error)[:100]})") from error
    if not isinstance(keys, list) or not all(isinstance(key, str) and key for key in keys):
        raise CheckpointError("the list of keys in the file's metadata is not a list of strings")
    if len(set(keys)) != len(keys):
        raise CheckpointError("the list of keys in the file's metadata names a key twice")
    return keys
