import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineage.keys import murmur2, partition_for

# From org.apache.kafka.common.utils.UtilsTest.
VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", VECTORS)
def test_the_hash_is_javas(key):
    assert murmur2(key) == VECTORS[key] % 2**32


@pytest.mark.parametrize("key", VECTORS)
def test_the_partition_is_javas(key):
    assert partition_for(key, 12) == (VECTORS[key] & 0x7FFFFFFF) % 12


@given(st.binary(max_size=40), st.integers(1, 1_000))
def test_a_partition_is_one_of_the_topics(key, partitions):
    assert 0 <= partition_for(key, partitions) < partitions
    assert partition_for(key, 1) == 0


def test_a_topic_without_partitions_has_none():
    with pytest.raises(ValueError, match="at least one"):
        partition_for(b"k", 0)
