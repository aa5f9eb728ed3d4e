"""What sending traces costs: the same pipeline served with an exporter and without, in turns.

The collector only counts what it is sent. It is a thread of the process that sends the queries, whose processor time is
not counted.
"""

from __future__ import annotations

import statistics
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final

from benchmarks.overhead.runs import SENDER, measured
from spillway.lineage.errors import SpillwayError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.overhead.runs import Spent

SHARE: Final = 0.1  # of the queries whose traces are sent
PAIRS: Final = 10


class _Collector(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.taken = 0  # bytes


class _Handler(BaseHTTPRequestHandler):
    server: _Collector

    def do_POST(self) -> None:
        self.server.taken += len(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Write nothing for a request."""


@contextmanager
def _collecting() -> Iterator[_Collector]:
    with _Collector() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def tracing(work: Path, file: str, rate: float, seconds: float) -> Iterator[tuple[tuple[str, str, str], float]]:
    """Measure `PAIRS` pairs, the first of each in turns. Raises SpillwayError where no trace was sent."""
    spent: dict[bool, list[float]] = {True: [], False: []}
    with _collecting() as collector:
        options = ("--otlp", f"http://127.0.0.1:{collector.server_port}", "--trace-sample", str(SHARE))
        for pair in range(PAIRS):
            for traced in (True, False) if pair % 2 else (False, True):
                with measured(work / f"{pair}-{traced}", file, *(options if traced else ())) as served:
                    spent[traced].append(_a_query(served.steady(rate, seconds)[1]))
        if not collector.taken:
            raise SpillwayError("the collector was sent no trace: what was measured is no exporter's cost")
    table, column = f"tracing {SHARE:.0%} of the queries: CPU time a query, ms", f"{rate:g}/s"
    more = [100 * (with_traces / without - 1) for with_traces, without in zip(spent[True], spent[False], strict=True)]
    yield (table, "without", column), statistics.median(spent[False])
    yield (table, "with", column), statistics.median(spent[True])
    for name, value in (("median of the pairs", statistics.median(more)), ("least", min(more)), ("most", max(more))):
        yield (table, f"more in a pair, %: {name}", column), value


def _a_query(spent: Spent) -> float:
    """Return the processor time of all processes but the sender's for a query, in ms."""
    seconds = sum(each for process, each in spent.cpu.items() if process != SENDER)
    return 1e3 * seconds / max(1, spent.answered)
