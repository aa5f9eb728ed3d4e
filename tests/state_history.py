"""What the version logs of a pipeline come to: which versions stand, since when, and what each shard has recorded.

It is judged as everybody in the pipeline judges, by `spillway.checkpoint.logs`; what is beside it here is time. All
clocks are one machine's, and what causes another thing is written before it; so the logs are read in the order of their
times.
"""

from __future__ import annotations

from heapq import merge
from itertools import accumulate
from typing import TYPE_CHECKING

from spillway.checkpoint.chunks import encode_key
from spillway.checkpoint.logs import Logs
from spillway.checkpoint.manifests import open_contents
from spillway.lineage.errors import SpillwayError
from spillway.lineage.marks import INITIAL, Version
from spillway.lineage.replication import Manifest
from spillway.lineage.values.replication import ReplicationDecoder
from spillway.topology import topics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from spillway.lineage.marks import Mark, Place
    from spillway.lineage.replication import Base, Batch, ChunkKey, Contents, Fence
    from tests.state_topics import Recording, Written

Fetch = "Callable[[ChunkKey], bytes | None]"


class Histories:
    """All shards of a pipeline. `problems` says where a log cannot be."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.spec = recording.pipeline.spec
        self.places: tuple[Place, ...] = self.spec.places
        self.logs = Logs(self.places)
        self.problems: list[str] = []
        self.manifests: dict[Place, dict[Version, Manifest]] = {place: {} for place in self.places}
        self.since: dict[Place, list[tuple[int, Version]]] = {place: [] for place in self.places}
        self._batches: dict[Place, dict[int, tuple[Version, Batch]]] = {}
        if recording.whole:
            for place in self.places:
                self.logs.caught_up(place)
        for at, place, record in merge(*map(self._records, self.places), key=lambda item: item[0]):
            self._take(at, place, record)
        for place in self.places:
            self.logs.caught_up(place)
        self._note(0)

    # What is asked ---------------------------------------------------------------------------------------------

    def durable_since(self, mark: Mark) -> int | None:
        """When a durable version has become so, in ms; None where it cannot be told."""
        for at, version in self.since[mark.place]:
            if version.n >= mark.version.n:
                return at
        return None

    def contents(self, place: Place, manifest: Manifest) -> Contents:
        """What a version consists of, also one whose records were tombstoned since. Raises SpillwayError."""
        return open_contents(manifest, self.ever(place))

    def batches(self, place: Place) -> dict[int, tuple[Version, Batch]]:
        """What the shard has recorded on its chain, up to the newest durable version, by n."""
        if place not in self._batches:
            self._batches[place] = self._read_batches(place)
        return self._batches[place]

    def now(self, place: Place) -> Callable[[ChunkKey], bytes | None]:
        """Chunks as the state topic has them now."""
        left = self.recording.left(topics.state(self.spec.name, place[0]), place[1])
        return lambda key: record.value if (record := left.get(encode_key(key))) is not None else None

    def ever(self, place: Place) -> Callable[[ChunkKey], bytes | None]:
        """Chunks as they were written first, tombstoned or not."""
        written: dict[bytes, bytes] = {}
        for record in self.recording.of(topics.state(self.spec.name, place[0]), place[1]):
            if record.value is not None and record.key is not None:
                written.setdefault(record.key, record.value)
        return lambda key: written.get(encode_key(key))

    def of_newcomer(self) -> Logs:
        """The logs as somebody finds them who reads what compaction may leave at the least."""
        logs = Logs(self.places)
        for place in self.places:
            for record in self.recording.left(topics.versions(self.spec.name, place[0]), place[1]).values():
                if record.value is not None:
                    logs.take(place, ReplicationDecoder().record(record.value))  # type: ignore[arg-type]
        for place in self.places:
            logs.caught_up(place)
        return logs

    # Inside ----------------------------------------------------------------------------------------------------

    def _records(self, place: Place) -> Iterator[tuple[int, Place, Written]]:
        log = self.recording.of(topics.versions(self.spec.name, place[0]), place[1])
        times = accumulate((record.at_ms for record in log), max)
        return ((at, place, record) for at, record in zip(times, log, strict=True))

    def _take(self, at: int, place: Place, written: Written) -> None:
        if written.value is None:
            self.logs.tombstoned(place, written.key or b"")
            return
        where = f"{topics.versions(self.spec.name, place[0])}[{place[1]}] offset {written.offset}"
        try:
            record: Fence | Base | Manifest = ReplicationDecoder().record(written.value)  # type: ignore[assignment]
            counts = self.logs.take(place, record)
        except SpillwayError as error:
            self.problems.append(f"{where}: {error}")
            return
        if counts and isinstance(record, Manifest):
            self.manifests[place][record.version] = record
        self._note(at)

    def _note(self, at: int) -> None:
        for place, since in self.since.items():
            version = self.logs.newest_durable(place)
            if version != (since[-1][1] if since else INITIAL):
                since.append((at, version))

    def _read_batches(self, place: Place) -> dict[int, tuple[Version, Batch]]:
        found: dict[int, tuple[Version, Batch]] = {}
        history, durable = self.logs.log(place).history, self.logs.newest_durable(place)
        for version, manifest in self.manifests[place].items():
            try:
                recorded = self.contents(place, manifest).batches
            except SpillwayError as error:
                self.problems.append(f"{place[0]}/{place[1]} {version}: {error}")
                continue
            for batch in recorded:
                of = Version(version.epoch, batch.n)
                if not history.alive(of) or batch.n > durable.n:
                    continue
                if found.setdefault(batch.n, (of, batch)) != (of, batch):
                    self.problems.append(f"{place[0]}/{place[1]} {of}: recorded twice, and otherwise")
        return dict(sorted(found.items()))
