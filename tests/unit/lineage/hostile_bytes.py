"""Bytes as nobody's encoder writes them, and what a reader makes of such: one typed error, in bounded memory."""

import tracemalloc

from spillway.lineage.errors import WireError

BOMB = (1 << 63) - 1


def varint(number):
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def text(content):
    return varint(len(content)) + content


def refusal(call, *arguments):
    """The reason for which a call refuses its arguments, None where it takes them. Other errors fail the test."""
    try:
        call(*arguments)
    except WireError as error:
        refused = error
    else:
        return None
    assert 0 < len(str(refused)) < 1_000
    return refused.reason


def memory_held(read, message):
    """The most memory, in bytes, that an attempt to read `message` holds at once."""
    tracemalloc.start()
    try:
        refusal(read, message)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
