"""The choices made for a query, and what was lost on its way, as they stand in headers.

Text, for people to read: `detect=plates,faces;triage=` says that `detect` chose two successors and `triage` none.
Stage names are legal Kafka topic names, so no separator is ever part of one. Paths repeat, so both directions remember
what they have seen lately; the caches are bounded and hold nothing that did not parse.
"""

from __future__ import annotations

import re
from typing import Any, Final

from lineage import reasons
from lineage.errors import WireError

Path = dict[str, tuple[str, ...]]

MAX_PATH_BYTES: Final = 4_096
_CACHED: Final = 256
_MAX_CACHED_BYTES: Final = 256
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")

_paths: dict[bytes, Path] = {}
_path_texts: dict[tuple[tuple[str, tuple[str, ...]], ...], bytes] = {}
_losses: dict[bytes, tuple[str, ...]] = {}


def encode_path(path: Path) -> bytes:
    """The header `spillway-path`. Raises WireError(NOT_ENCODABLE) for a name that is none, or too many."""
    key = tuple(path.items())
    text = _path_texts.get(key)
    if text is None:
        for chooser, chosen in key:
            _check((chooser, *chosen), reasons.NOT_ENCODABLE)
        text = _bounded(";".join(f"{chooser}={','.join(chosen)}" for chooser, chosen in key).encode())
        _remember(_path_texts, key, text, len(text))
    return text


def decode_path(raw: bytes) -> Path:
    """The choices in the header `spillway-path`, in a dict of the caller's own. Raises WireError(BAD_HEADERS)."""
    path = _paths.get(raw)
    if path is None:
        path = {}
        for choice in _text(raw).split(";"):
            chooser, equals, names = choice.partition("=")
            chosen = tuple(names.split(",")) if names else ()
            if not equals or chooser in path or len(set(chosen)) != len(chosen):
                raise _bad(raw)
            _check((chooser, *chosen), reasons.BAD_HEADERS)
            path[chooser] = chosen
        _remember(_paths, raw, path, len(raw))
    return dict(path)


def encode_lost(lost: tuple[str, ...]) -> bytes:
    """The header `spillway-lost`. Raises WireError(NOT_ENCODABLE) for a name that is none, or too many."""
    _check(lost, reasons.NOT_ENCODABLE)
    return _bounded(",".join(lost).encode())


def decode_lost(raw: bytes) -> tuple[str, ...]:
    """The names in the header `spillway-lost`. Raises WireError(BAD_HEADERS)."""
    lost = _losses.get(raw)
    if lost is None:
        lost = tuple(_text(raw).split(","))
        _check(lost, reasons.BAD_HEADERS)
        _remember(_losses, raw, lost, len(raw))
    return lost


def _text(raw: bytes) -> str:
    if len(raw) > MAX_PATH_BYTES or not raw.isascii():
        raise _bad(raw)
    return raw.decode()


def _bounded(raw: bytes) -> bytes:
    if len(raw) > MAX_PATH_BYTES:
        raise WireError(reasons.NOT_ENCODABLE, f"the names of {len(raw)} bytes are over the limit of {MAX_PATH_BYTES}")
    return raw


def _check(names: tuple[str, ...], reason: str) -> None:
    for name in names:
        if not _NAME.fullmatch(name):
            raise WireError(reason, f"{name!r:.80} is no stage's name")


def _remember(cache: dict[Any, Any], key: object, value: object, size: int) -> None:
    if size > _MAX_CACHED_BYTES:
        return
    if len(cache) >= _CACHED:
        cache.clear()  # a hostile writer's paths must not keep ours out for good
    cache[key] = value


def _bad(raw: bytes) -> WireError:
    return WireError(reasons.BAD_HEADERS, f"these are no stages' names: {raw[:80]!r}")
