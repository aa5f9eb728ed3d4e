"""The headers of a record whose header keys are not UTF-8 are read all the same, from the bytes of a fetch."""

import pytest
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy

from agents.live.consumer.lenient import headers_at

GZIP = 1


class NotUtf8(str):
    __slots__ = ()

    def encode(self, *_):
        return b"\xff\xfe" + str(self).encode()


def batch(base, records, compression=0):
    """Built with aiokafka's own pure-Python builder, whose header keys may be any object with `encode`."""
    builder = _DefaultRecordBatchBuilderPy(2, compression, 0, -1, -1, -1, 1 << 20)
    for index, (key, value, headers) in enumerate(records):
        assert builder.append(index, 1_000 + index, key, value, headers)
    raw = bytearray(builder.build())
    raw[:8] = base.to_bytes(8, "big")
    return bytes(raw)


GOOD = (b"k", b"v", [("a", b"1")])
BAD = (None, b"bad", [(NotUtf8("x"), b"2"), ("b", None)])
READ = ((b"\xff\xfex", b"2"), ("b", None))


@pytest.mark.parametrize("compression", [0, GZIP])
def test_a_key_that_is_not_utf8_stays_bytes(compression):
    fetched = batch(8, [GOOD, GOOD]) + batch(10, [GOOD, BAD, GOOD], compression)
    assert headers_at(fetched, 11) == READ
    assert headers_at(fetched, 12) == headers_at(fetched, 8) == (("a", b"1"),)


def test_what_is_not_there_is_not_found():
    whole, cut = batch(0, [BAD, BAD]), batch(5, [GOOD])
    for offset in (3, 5, 6):  # compacted away; in a batch that the broker has cut; behind the end
        assert headers_at(whole + cut[:-3], offset) is None
    assert headers_at(b"", 0) is None
