"""A keyed state in pages: each page holds the states of the keys that fall to it, as bytes.

A batch touches some keys, and a version writes the pages of these. Invariants:

* A key lies in page crc32(key) mod the number of pages, which is a power of two; a page's keys are in order. So the
  same states in as many pages give the same bytes, whatever happened before.
* A page does not change: a touched key makes a new one, which shares nothing; captured versions keep the old ones.
* Pages hold about `page_bytes` on average: when they grow beyond twice that, their number doubles and all are written
  anew, which costs the state's size once per doubling. (It never shrinks below what it was: a promoted primary goes on
  with the number that the manifest has.)

A page's bytes are, for each key: three lengths of four bytes (of the key, its entries, its data), then these. The
entries are a `spillway.Contents` with the small values; it is the same for most keys, and is then decoded once.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from spillway.checkpoint import arrays
from spillway.checkpoint.blocks import Block
from spillway.checkpoint.state import flatten, of_key, unflatten
from spillway.lineage.errors import CheckpointError, WireError
from spillway.lineage.replication import Contents
from spillway.lineage.values.replication import ReplicationDecoder, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spillway.checkpoint.state import Flat

PAGE_BYTES: Final = 8 << 10
MAX_PAGES: Final = 1 << 16
_HEADER: Final = struct.Struct("<III")
_CACHED: Final = 1_024
_DECODER: Final = ReplicationDecoder()  # of our own schemas: pages are written and read by one release, or handed on


class Page:
    """The states of some keys, as bytes."""

    __slots__ = ("blocks", "nbytes", "parts")

    def __init__(self, parts: dict[str, bytes], chunk_bytes: int) -> None:
        self.parts = dict(sorted(parts.items()))
        data = np.frombuffer(b"".join(self.parts.values()), np.uint8)
        self.nbytes = len(data)
        self.blocks = tuple(Block(data[at : at + chunk_bytes]) for at in range(0, len(data), chunk_bytes))


class Pages:
    """The pages of a shard's keyed state."""

    def __init__(self, chunk_bytes: int, page_bytes: int = PAGE_BYTES, count: int = 1) -> None:
        if count < 1 or count & count - 1 or count > MAX_PAGES:
            raise CheckpointError(
                f"the number of pages of a keyed state must be a power of two, at most {MAX_PAGES}, not {count}"
            )
        self._chunk_bytes = chunk_bytes
        self._page_bytes = page_bytes
        self._pages = [Page({}, chunk_bytes) for _ in range(count)]

    @property
    def now(self) -> tuple[Page, ...]:
        return tuple(self._pages)

    def update(self, states: Mapping[str, Mapping[Any, Any]], touched: Iterable[str] | None) -> int:
        """Take the states of the touched keys (None: of all); bytes copied. Raises StateError, and then takes none."""
        named = named_states(states, touched)
        return self.put({key: flatten(state, what) for key, (what, state) in named.items()}, touched)

    def put(self, flats: Mapping[str, Flat], touched: Iterable[str] | None) -> int:
        """Take the leaves of the touched keys that there still are; bytes copied. Raises CheckpointError."""
        keys = set(flats) | {key for page in self._pages for key in page.parts} if touched is None else set(touched)
        parts = {key: _part(key, flats[key]) if key in flats else None for key in keys}
        pages: dict[int, dict[str, bytes]] = {}
        count = len(self._pages)
        for key, part in parts.items():
            at = _page_of(key, count)
            page = pages.get(at)
            if page is None:
                page = pages[at] = dict(self._pages[at].parts)
            if part is None:
                page.pop(key, None)
            else:
                page[key] = part
        for at, page in pages.items():
            if page != self._pages[at].parts:
                self._pages[at] = Page(page, self._chunk_bytes)
        self._grow()
        return sum(len(part) for part in parts.values() if part is not None)

    def _grow(self) -> None:
        total = sum(page.nbytes for page in self._pages)
        keys = sum(len(page.parts) for page in self._pages)
        count = len(self._pages)
        while count < MAX_PAGES and count < keys and total > 2 * self._page_bytes * count:
            count *= 2
        if count == len(self._pages):
            return
        spread: list[dict[str, bytes]] = [{} for _ in range(count)]
        for page in self._pages:
            for key, part in page.parts.items():
                spread[_page_of(key, count)][key] = part
        self._pages = [Page(parts, self._chunk_bytes) for parts in spread]


class _Shape(NamedTuple):
    """What the entries of a part say, decoded."""

    contents: Contents
    sizes: tuple[int, ...]


class PageReader:
    """Reads pages. Raises CheckpointError for what `Pages` does not make."""

    def __init__(self) -> None:
        self._shapes: dict[bytes, _Shape] = {}

    def read(self, data: bytes, page: int) -> dict[str, dict[Any, Any]]:
        """The states in a page, by key; tensors are copies, as states are written to."""
        states, at = {}, 0
        try:
            while at < len(data):
                key_size, entries_size, data_size = _HEADER.unpack_from(data, at)
                start = at + _HEADER.size + key_size
                key = data[at + _HEADER.size : start].decode()
                at = start + entries_size + data_size
                shape = self._shape(data[start : start + entries_size])
                states[key] = _state(shape, memoryview(data)[start + entries_size : at], data_size)
        except (struct.error, UnicodeDecodeError, WireError, CheckpointError) as error:
            raise CheckpointError(f"page {page} of a keyed state cannot be read: {error}") from error
        return states

    def _shape(self, encoded: bytes) -> _Shape:
        shape = self._shapes.get(encoded)
        if shape is None:
            contents = _DECODER.contents(encoded)
            shape = _Shape(contents, tuple(arrays.nbytes(entry) for entry in contents.entries if entry.dtype))
            if len(self._shapes) >= _CACHED:
                self._shapes.clear()
            self._shapes[encoded] = shape
        return shape


def _page_of(key: str, count: int) -> int:
    return zlib.crc32(key.encode()) & count - 1


def named_states(
    states: Mapping[str, Mapping[Any, Any]], touched: Iterable[str] | None
) -> dict[str, tuple[str, Mapping[Any, Any]]]:
    """The states of the touched keys (None: of all), and how errors name each. Raises StateError."""
    keys = states if touched is None else touched
    return {key: (of_key(key), states[key]) for key in keys if key in states}


def _part(key: str, flat: Flat) -> bytes:
    try:
        entries = encode(Contents(flat.entries, flat.values))
    except WireError as error:
        raise CheckpointError(f"{of_key(key)} cannot be encoded: {error}") from error
    tensors = [tensor.tobytes() for tensor in flat.tensors]
    name = key.encode()
    return b"".join((_HEADER.pack(len(name), len(entries), sum(map(len, tensors))), name, entries, *tensors))


def _state(shape: _Shape, data: memoryview, size_said: int) -> dict[Any, Any]:
    if not len(data) == size_said == sum(shape.sizes):
        raise CheckpointError("its lengths do not match its size")
    tensors, at = [], 0
    for entry in shape.contents.entries:
        if entry.dtype:
            array = arrays.empty(entry)
            size = array.nbytes
            array.reshape(-1).view(np.uint8)[:] = np.frombuffer(data[at : at + size], np.uint8)
            tensors.append(array)
            at += size
    return unflatten(shape.contents.entries, tensors, shape.contents.values)
