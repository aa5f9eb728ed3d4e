"""What passes on a link: when it may, and which requests of a Kafka client it is. Pure."""

import struct

_HEADER = struct.Struct(">ihhih")  # size, api key, api version, correlation id, length of the client id
_PREFIX = struct.Struct(">ih")  # size, api key
_HEAD = 1_024  # bytes of a request that are told
PRODUCE = 0  # an api key


class Flow:
    """One direction of a link: when what was read may be written. Times in seconds of one clock."""

    def __init__(self, rate: float | None = None, delay: float = 0.0) -> None:
        self.rate = rate
        self.delay = delay
        self.held = False
        self._free = float("-inf")  # when all that was let through before has passed

    def due(self, read_at: float, size: int) -> float:
        """When `size` bytes that were read at `read_at` may pass."""
        start = max(self._free, read_at)
        return max(start + (size / self.rate if self.rate else 0.0), read_at + self.delay)

    def passed(self, read_at: float, size: int) -> None:
        self._free = max(self._free, read_at) + (size / self.rate if self.rate else 0.0)


class Requests:
    """Cuts a Kafka client's bytes into requests, and gives the api key and the beginning of each, once."""

    def __init__(self) -> None:
        self._head = bytearray()  # of the request that has begun
        self._left = 0  # bytes of a request whose beginning was given

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Take what comes next; gives the requests whose beginnings are complete with it."""
        found = []
        while data:
            skipped = min(self._left, len(data))
            self._left -= skipped
            data = data[skipped:]
            want = _PREFIX.size
            if len(self._head) >= want:
                want = min(4 + _PREFIX.unpack_from(self._head)[0], _HEAD)
            taken = min(want - len(self._head), len(data))
            self._head += data[:taken]
            data = data[taken:]
            if len(self._head) < _PREFIX.size:
                continue
            size, api = _PREFIX.unpack_from(self._head)
            if len(self._head) >= min(4 + size, _HEAD):
                found.append((api, bytes(self._head)))
                self._left = 4 + size - len(self._head)
                self._head.clear()
        return found


def client_id(data: bytes) -> str:
    """The client id in a Kafka client's first request; empty where there is none."""
    if len(data) < _HEADER.size:
        return ""
    length = _HEADER.unpack_from(data)[-1]
    if not 0 < length <= len(data) - _HEADER.size:
        return ""
    return data[_HEADER.size : _HEADER.size + length].decode("utf-8", "replace")
