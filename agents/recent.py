"""What was used most recently, bounded in bytes: the least recently used entries leave first."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Hashable

_ENTRY_BYTES: Final = 200  # that an entry takes beside its value: its key, its place in the order


class Recent:
    """A mapping that forgets. Not for several threads."""

    def __init__(self, max_bytes: int) -> None:
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()  # value and bytes
        self.max_bytes = max_bytes
        self.bytes = 0

    def get(self, key: Hashable) -> Any:
        """The value, which counts as used now; None where there is none."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def put(self, key: Hashable, value: Any, size: int) -> None:
        """Keep a value, which takes `size` bytes, if it fits at all."""
        size += _ENTRY_BYTES
        if size > self.max_bytes:
            return
        old = self._entries.pop(key, None)
        self.bytes += size - (0 if old is None else old[1])
        self._entries[key] = (value, size)
        while self.bytes > self.max_bytes:
            _, (_, freed) = self._entries.popitem(last=False)
            self.bytes -= freed

    def keys(self) -> list[Any]:
        """The least recently used first."""
        return list(self._entries)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)
