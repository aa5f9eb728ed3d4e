"""What it costs to make a state's versions: copy, compare, hash, encode, delta, assemble; no broker.

Megabytes are 10**6 bytes of state; seconds are CPU time of the measuring thread, so other work on the machine counts
only where it takes caches and memory bandwidth; each figure is the median of the repeats, with the fastest and the
slowest beside it. Changes are in one place, as in a row of a table, or everywhere.

Where there is a GPU, a state on it is measured too, in wall time (`benchmarks.cuda_copy`).
"""

from __future__ import annotations

import statistics
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from benchmarks.output import Table, tell
from spillway.agents.cli.options import json_option
from spillway.checkpoint.assembly import assemble
from spillway.checkpoint.blocks import digest_of
from spillway.checkpoint.capture import Capture
from spillway.checkpoint.chunks import ChunkLog, encode_key
from spillway.checkpoint.layout import CHUNK_BYTES
from spillway.checkpoint.manifests import describe
from spillway.lineage.marks import Version
from spillway.lineage.values.replication import ReplicationDecoder, encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.checkpoint.chunks import Writing
    from spillway.lineage.replication import ChunkKey

_TENSORS = 20
_SMALL = 0.01  # of the state


def _state(megabytes: int) -> dict[str, Any]:
    random = np.random.default_rng(0)
    each = megabytes * 1_000_000 // _TENSORS // 4
    return {f"layer{number}.weight": random.random(each, np.float32) for number in range(_TENSORS)}


def _change(state: dict[str, Any], share: float, step: int) -> None:
    left = int(share * sum(array.size for array in state.values()))
    for array in state.values():
        array[:left] += np.float32(step)
        left -= array.size
        if left <= 0:
            return


class _Clock:
    """Seconds of CPU of this thread, by what was done."""

    def __init__(self) -> None:
        self.taken: dict[str, list[float]] = {}

    def time(self, name: str, once: Callable[[], Any]) -> Any:
        before = time.thread_time()
        result = once()
        self.taken.setdefault(name, []).append(time.thread_time() - before)
        return result


def measure(megabytes: int, repeats: int) -> dict[str, Any]:
    state, clock = _state(megabytes), _Clock()
    size = sum(array.nbytes for array in state.values())
    raw = [np.empty_like(array) for array in state.values()]
    capture, log, topic = Capture(), ChunkLog(1), dict[bytes, bytes]()
    decoder = ReplicationDecoder()
    written, n = {}, 0

    def fetch(key: ChunkKey) -> bytes | None:
        return topic.get(encode_key(key))

    for _ in range(repeats + 1):  # the first takes fresh memory, and is not counted
        clock.time("plain copy", partial(_copy, raw, state))
        clock.time("hash", lambda: [digest_of(view) for array in raw for view in _pieces(array)])
        for name, share in (("all", 1.0), ("1 %", _SMALL), ("none", 0.0)):
            n += 1
            _change(state, share, n)
            captured = clock.time(f"capture, {name} changed", lambda: capture.take(state))
            writing = log.write(Version(1, n), captured)
            records = clock.time(f"delta and hash, {name} changed", partial(_listed, writing))
            topic.update((key, bytes(value)) for key, value in records)
            log.acknowledged(writing)
            written[name] = writing.written_bytes
            contents = describe(captured, writing)
            encoded = clock.time("encode the contents", partial(encode, contents))
            for key in log.durable(writing.version):
                topic.pop(encode_key(key), None)
            captured.release()
        decoded = clock.time("decode the contents", partial(decoder.contents, encoded))
        clock.time("verify and assemble", partial(assemble, decoded, fetch))
    rows = {name: _row(taken[len(taken) // (repeats + 1) :], size) for name, taken in clock.taken.items()}
    shape = {"megabytes": megabytes, "chunks": len(contents.chunks), "contents_bytes": len(encoded)}
    return shape | {"written_bytes": written, "costs": rows}


def measure_on_gpu(megabytes: int, repeats: int) -> dict[str, Any] | None:
    """The figures for a state of this size on a GPU; None where there is none."""
    try:
        from benchmarks import cuda_copy  # noqa: PLC0415  torch is imported after the other figures were taken
    except ImportError:  # no torch
        return None
    found = cuda_copy.measure(megabytes, repeats)
    if found is None:
        return None
    costs = {name: _row(seconds, found["bytes"]) for name, seconds in found["seconds"].items()}
    return {"device": found["device"], "costs": costs}


def cuda_table(measured: dict[str, Any] | None) -> Table:
    if measured is None:
        return Table("no CUDA device: not measured", (), ())
    return _table(f"on {measured['device']}, seconds on the wall", measured["costs"])


def _table(title: str, costs: dict[str, dict[str, float]]) -> Table:
    rows = [
        (name, *(f"{row[key]:.2f}" for key in ("ms", "least_ms", "most_ms")), f"{row['mb_s']:,.0f}")
        for name, row in costs.items()
    ]
    return Table(title, ("", "ms", "least", "most", "MB/s"), rows)


def _copy(into: list[Any], state: dict[str, Any]) -> None:
    for to, of in zip(into, state.values(), strict=True):
        np.copyto(to, of)


def _listed(writing: Writing) -> list[Any]:
    return list(writing.records())


def _pieces(array: Any) -> list[Any]:
    view = array.view(np.uint8)
    return [view[at : at + CHUNK_BYTES] for at in range(0, len(view), CHUNK_BYTES)]


def _row(taken: list[float], size: int) -> dict[str, float]:
    """Median, least and most of some times, and the rate at which they take a state of this size."""
    ms = sorted(1_000 * seconds for seconds in taken)
    middle = statistics.median(ms)
    rate = size / 1_000 / middle if middle else float("inf")
    return {"ms": round(middle, 3), "least_ms": round(ms[0], 3), "most_ms": round(ms[-1], 3), "mb_s": round(rate, 1)}


@click.command()
@click.option("--size", "sizes", type=click.IntRange(1, 2_000), multiple=True, help="MB.  [default: 10, 100]")
@click.option("--repeats", type=click.IntRange(1, 1_000), default=9, show_default=True)
@json_option
def state_copy(sizes: tuple[int, ...], repeats: int, *, as_json: bool) -> None:
    """Measure what a version of a state costs to copy, to hash, to write as a delta and to put together again.

    \b
    Example: python -m benchmarks state-copy --size 10 --size 100
    """  # noqa: D301 - click's own marks
    results = [measure(size, repeats) for size in sizes or (10, 100)]
    for result in results:
        result["cuda"] = measure_on_gpu(result["megabytes"], repeats)
    tables = []
    for result in results:
        told = ", ".join(f"{name} {size / 1e6:.2f} MB" for name, size in result["written_bytes"].items())
        about = f"{result['megabytes']} MB, {result['chunks']} chunks, contents {result['contents_bytes']:,} bytes"
        tables += [_table(f"{about}; written for what changed: {told}", result["costs"]), cuda_table(result["cuda"])]
    tell({"repeats": repeats, "states": results}, *tables, as_json=as_json)
