"""librdkafka's own mock of a cluster: a broker in a thread of this process, which answers with errors when told to.

confluent-kafka does not give it to Python, so its C functions are called in the very library that is loaded.
"""

import ctypes
from pathlib import Path
from typing import Any

import confluent_kafka  # noqa: F401 - loads the library

OFFSET_FETCH = 9  # the protocol's numbers
INIT_PRODUCER_ID = 22
_PRODUCER = 0
_TEXT = 512


class MockCluster:
    """One broker, for as long as the process lives; `bootstrap` is its address. Raises LookupError on a system
    whose loaded libraries cannot be listed (`available` says so)."""

    def __init__(self) -> None:
        self._lib = ctypes.CDLL(_loaded())
        for name in ("rd_kafka_new", "rd_kafka_mock_cluster_new"):
            getattr(self._lib, name).restype = ctypes.c_void_p
        self._lib.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
        said = ctypes.create_string_buffer(_TEXT)
        self._client = ctypes.c_void_p(self._lib.rd_kafka_new(_PRODUCER, None, said, ctypes.c_size_t(_TEXT)))
        self._cluster = ctypes.c_void_p(self._lib.rd_kafka_mock_cluster_new(self._client, 1))
        self.bootstrap: str = self._lib.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def topic(self, name: str, partitions: int) -> None:
        self._lib.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, 1)

    def answer_with(self, request: int, *errors: int) -> None:
        """Answer the next requests of a kind with these errors of the protocol."""
        codes: Any = (ctypes.c_int * len(errors))(*errors)
        self._lib.rd_kafka_mock_push_request_errors_array(
            self._cluster, ctypes.c_int16(request), ctypes.c_size_t(len(errors)), codes
        )


def available() -> bool:
    """Whether this system tells which libraries are loaded."""
    return _maps().exists()


def _maps() -> Path:
    return Path("/proc/self/maps")


def _loaded() -> str:
    for line in _maps().read_text().splitlines():
        if "librdkafka" in line:
            return line.split()[-1]
    raise LookupError("librdkafka is not loaded as a library of its own")
