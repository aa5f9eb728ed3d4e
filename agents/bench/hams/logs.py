"""A shard's logs after many versions against their size after one: on the broker's disk, and for a new reader.

A state's versions are written one after the other, as fast as that goes, into topics as a pipeline's plan makes them.
Two sizes are told: when the last version was just written, with all that the broker may not compact yet
(`min.compaction.lag.ms`), and at rest, when the broker has done to them what it ever will unasked. What grows with the
rate of writing, not with the count of versions, is the first; the bound of four states is for the second.

A version changes a stretch of the state that goes round: chunks are written whole, so 1 % of a small state is more.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition

from agents.bench.hams.shard import STAGE, Primary, change, make_state, make_topics
from agents.bench.pard.output import Table
from agents.live.states.state_writer import RETAIN
from lineage.errors import SpillwayError
from topology import topics

if TYPE_CHECKING:
    from agents.bench.hams.setting import Setting

_FULL = 10_000
_TOLD = 1_000  # versions between two words of progress
_POLL, _STILL, _LEAST, _MOST = 5.0, 40.0, 100.0, 240.0  # seconds: until sizes count as those at rest
_READ_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Case:
    """A state, and what each version changes of it. Fewer than 10,000 versions where they were 100 GB."""

    megabytes: int
    share: float
    versions: int
    retain: int = RETAIN  # versions before the newest durable one that operators can go back to


CASES = (
    Case(1, 0.01, _FULL),
    Case(10, 0.01, _FULL),
    Case(40, 0.01, 1_000),
    Case(10, 1.0, 200),
    Case(10, 1.0, 200, retain=2),
)


def measure_logs(setting: Setting) -> dict[str, Any]:
    """Write every case, then wait until the broker has compacted all of them."""
    rows = [_written(setting, case) for case in CASES]
    settled = _settle(setting, [row["pipeline"] for row in rows])
    for row in rows:
        row["rest"] = _sizes(setting, row["pipeline"])
    return {"settled_after": settled, "rows": rows}


def _written(setting: Setting, case: Case) -> dict[str, Any]:
    pipeline = f"logs-{case.megabytes}-{setting.run()}"
    make_topics(setting.cluster, pipeline)
    state = make_state(case.megabytes)
    with Primary(setting.cluster, pipeline, case.retain) as primary:
        manifest = primary.write(state)
        first = _sizes(setting, pipeline)
        began = time.monotonic()
        for step in range(1, case.versions):
            change(state, case.share, step)
            manifest = primary.write(state)
            if not step % _TOLD:
                setting.say(f"{case.megabytes} MB: {step} versions in {time.monotonic() - began:.0f} s")
        took = time.monotonic() - began
        written = primary.written_bytes
    row = {
        "pipeline": pipeline,
        "state_bytes": manifest.state_bytes,
        "share": case.share,
        "versions": case.versions,
        "retain": case.retain,
        "seconds": round(took, 1),
        "written_bytes": written,
        "first": first,
        "end": _sizes(setting, pipeline),
    }
    setting.say(f"{case.megabytes} MB, {100 * case.share:g} %: {case.versions} versions in {took:.0f} s")
    return row


def _settle(setting: Setting, pipelines: list[str]) -> float:
    """Wait until no log changes any more; seconds, or the bound where they still did."""
    began = time.monotonic()
    changed, before = began, {name: _disk(setting, name) for name in pipelines}
    while (now := time.monotonic()) - began < _MOST:
        if now - began >= _LEAST and now - changed >= _STILL:
            break
        time.sleep(_POLL)
        sizes = {name: _disk(setting, name) for name in pipelines}
        if sizes != before:
            changed, before = time.monotonic(), sizes
            setting.say(
                f"after {changed - began:.0f} s: {', '.join(f'{size / 1e6:.1f} MB' for size in sizes.values())}"
            )
    return round(time.monotonic() - began, 1)


def _sizes(setting: Setting, pipeline: str) -> dict[str, int]:
    return {"disk_bytes": _disk(setting, pipeline)} | _read(setting, pipeline)


def _disk(setting: Setting, pipeline: str) -> int:
    logs = setting.folder / "kafka" / "log"
    files = [file for topic in _names(pipeline) for file in (logs / f"{topic}-0").glob("*.log")]
    return sum(file.stat().st_size for file in files if file.exists())


def _names(pipeline: str) -> tuple[str, str]:
    return topics.state(pipeline, STAGE), topics.versions(pipeline, STAGE)


def _read(setting: Setting, pipeline: str) -> dict[str, int]:
    settings = {"group.id": "bench", "enable.auto.commit": False, "fetch.message.max.bytes": 8 << 20}
    consumer = Consumer({**setting.cluster.confluent(), **settings})
    found = {"read_bytes": 0, "records": 0, "tombstones": 0}
    try:
        ends = {
            topic: consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30) for topic in _names(pipeline)
        }
        for topic, (_, end) in ends.items():
            _read_one(consumer, topic, end, found)
    finally:
        consumer.close()
    return found


def _read_one(consumer: Consumer, topic: str, end: int, found: dict[str, int]) -> None:
    place = TopicPartition(topic, 0, 0)
    consumer.assign([place])
    deadline = time.monotonic() + _READ_SECONDS
    while consumer.position([place])[0].offset < end:
        if time.monotonic() > deadline:
            raise SpillwayError(f"{topic} was not read to its end at {end} within {_READ_SECONDS:g} s")
        for message in consumer.consume(500, 0.2):
            if message.error() is None:
                value = message.value()
                found["records"] += 1
                found["tombstones"] += value is None
                found["read_bytes"] += len(value or b"") + len(message.key() or b"")


def tables(result: dict[str, Any]) -> list[Table]:
    """One row for each case; sizes as multiples of those after one version."""
    rows = []
    for row in result["rows"]:
        first, end, rest = row["first"], row["end"], row["rest"]
        rows.append(
            [
                f"{row['state_bytes'] / 1e6:.0f} MB",
                f"{100 * row['share']:g} % ({row['written_bytes'] / row['versions'] / 1e6:.2f} MB)",
                f"{row['versions']:,} in {row['seconds']:.0f} s",
                f"{1 + row['retain']}",
                _multiple(end, first, "disk_bytes"),
                _multiple(rest, first, "disk_bytes"),
                _multiple(rest, first, "read_bytes"),
                f"{end['tombstones']:,}, {rest['tombstones']:,}",
            ]
        )
    return [
        Table(
            "The logs of a shard after many versions, over those after one",
            (
                "state", "changed (written) a version", "versions", "kept", "disk at the last one", "disk at rest",
                "a new reader reads, at rest", "tombstones it reads: at the last one, at rest",
            ),
            rows,
            (f"At rest: {result['settled_after']:.0f} s after the last row's last version, which is written last.",),
        )
    ]  # fmt: skip


def _multiple(sizes: dict[str, int], first: dict[str, int], what: str) -> str:
    return f"{sizes[what] / 1e6:.1f} MB ({sizes[what] / first[what]:.2f}x)"
