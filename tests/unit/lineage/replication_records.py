"""Any records of stateful shards, and how a reader with other writers' schemas takes them."""

from itertools import accumulate

from hypothesis import strategies as st

from spillway.lineage.marks import Mark, Version
from spillway.lineage.replication import (
    Base,
    Batch,
    Beat,
    ChunkKey,
    ChunkRef,
    Claim,
    Contents,
    Entry,
    Fence,
    InputPlace,
    InputRecord,
    Manifest,
    Output,
    Report,
    Yield,
)
from spillway.lineage.schemas import CHECKED, CONTENTS, HEADER_BYTES, MARKER, OWN_FINGERPRINTS, REPLICATION, SchemaBook
from spillway.lineage.values.replication import ReplicationDecoder, sealed

from .schema_versions import NEXT, TWINS
from .strategies import names, values

numbers = st.integers(0, 2**62)
ints = st.integers(0, 2**31 - 1)
versions = st.builds(Version, numbers, numbers)
chains = st.lists(st.tuples(st.integers(2**40, 2**41), st.builds(Version, st.integers(0, 2**20), numbers)), max_size=3)
chunks = st.lists(
    st.builds(ChunkRef, st.builds(ChunkKey, numbers, numbers, ints), ints, st.binary(min_size=16, max_size=16)),
    max_size=4,
).map(tuple)
records = st.lists(st.builds(InputRecord, names, ints, numbers), max_size=4).map(tuple)
manifests = st.builds(
    Manifest,
    versions,
    chains.map(tuple),
    st.lists(st.builds(Mark, names, ints, versions), max_size=3).map(tuple),
    names,
    numbers,
    numbers,
    numbers,
    ints,
    ints,
    st.just(b"") | st.binary(min_size=16, max_size=16),
    st.binary(max_size=40),
    chunks,
)
shapes = st.lists(st.integers(0, 100), max_size=4).map(tuple)
entries = st.lists(
    st.builds(
        Entry, names, st.sampled_from(["numpy", "torch"]), st.sampled_from(["float32", "bfloat16", "bool"]), shapes
    ),
    max_size=4,
    unique_by=lambda entry: entry.name,
)


def _runs(position, gaps):
    bounds = tuple(accumulate(gaps, initial=position))[1:]
    return tuple(zip(bounds[::2], bounds[1::2], strict=True))


inputs = st.lists(
    st.builds(
        lambda partition, position, note, gaps: InputPlace(partition, position, note, _runs(position, gaps)),
        ints,
        numbers,
        names,
        st.lists(st.integers(1, 2**50), max_size=4).filter(lambda gaps: len(gaps) % 2 == 0),
    ),
    max_size=2,
).map(tuple)


@st.composite
def contents_of(draw):
    tensors = draw(entries)
    small = draw(st.dictionaries(names, values, max_size=3))
    taken = {entry.name for entry in tensors}
    small = {name: value for name, value in small.items() if name not in taken}
    return Contents(
        (*tensors, *(Entry(name, "value", "", ()) for name in small)),
        small,
        draw(st.integers(1, 2**31 - 1)),
        draw(ints),
        draw(chunks),
        draw(st.lists(ints, max_size=3).map(tuple)),
        draw(st.lists(st.builds(Batch, numbers, records, records), max_size=3).map(tuple)),
        draw(
            st.lists(
                st.builds(
                    Output,
                    names,
                    ints,
                    st.binary(max_size=9),
                    st.binary(max_size=9),
                    st.lists(st.tuples(names, st.binary(max_size=5)), max_size=2).map(tuple),
                ),
                max_size=2,
            ).map(tuple)
        ),
        draw(inputs),
    )


others = st.one_of(
    st.builds(Fence, numbers, names, numbers),
    st.builds(Base, numbers, names, versions, chains.map(tuple)),
    st.builds(Claim, names, ints, numbers, names, numbers, names),
    st.builds(Beat, names, ints, names, numbers, names, numbers, numbers, versions),
    st.builds(Report, names, ints, st.lists(names, max_size=3).map(tuple), numbers, names),
    st.builds(Yield, names, ints, numbers, names, numbers, names),
)
shard_records = st.one_of(manifests, contents_of(), others)

BOOK = SchemaBook()
HEADERS = {name: MARKER + OWN_FINGERPRINTS[name] for name in REPLICATION}
NAME_OF = {header: name for name, header in HEADERS.items()}
TWIN_HEADERS = {name: MARKER + BOOK.add(TWINS[name]) for name in REPLICATION}
NEXT_HEADERS = {name: MARKER + BOOK.add(NEXT[name]) for name in REPLICATION}
DECODER = ReplicationDecoder(BOOK)
CHECKED_HEADERS = {versions[name] for versions in (HEADERS, TWIN_HEADERS, NEXT_HEADERS) for name in CHECKED}
CONTENTS_HEADERS = {versions[CONTENTS] for versions in (HEADERS, TWIN_HEADERS, NEXT_HEADERS)}
ALL_HEADERS = [*HEADERS.values(), *TWIN_HEADERS.values(), *NEXT_HEADERS.values()]


def read(message):
    return (DECODER.contents if message[:HEADER_BYTES] in CONTENTS_HEADERS else DECODER.record)(message)


def checked(message):
    """The message with room for a checksum, and the right one in it, where its kind has one: as a writer would."""
    return sealed(message + bytes(16)) if message[:HEADER_BYTES] in CHECKED_HEADERS else message


def under(header, message):
    """A record's bytes under the header of another schema of its kind."""
    return checked(header + (message[HEADER_BYTES:-16] if header in CHECKED_HEADERS else message[HEADER_BYTES:]))
