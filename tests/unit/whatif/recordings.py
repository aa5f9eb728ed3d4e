"""Recordings made by hand: what a first-come-first-served pipeline of single queries would have left on its topics."""

from spillway.lineage.headers import Headers, encode
from spillway.lineage.message import DROPPED, PREDICTION, Outcome, Query, StageTiming
from spillway.lineage.values.codec import encode_outcome, encode_query
from spillway.producers.recording import About, Recorded, RecordingWriter

UNIX = 1_700_000_000.0


class Taken:
    """Writes a recording, query by query. Times in seconds from its start."""

    def __init__(self, directory, spec, *, name="small", policies=None, period=1.0, workers=None):
        about = About(name, spec, f"{name}.ingress", f"{name}.egress", {}, policies or {}, UNIX, period, workers or {})
        self._writer = RecordingWriter(directory, about)
        self._name = name
        self._offset = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._writer.close()

    def query(self, name, sent, *, budget=0.1, appended=None, partition=0):
        at = int((UNIX + sent) * 1e6)
        pairs = encode(Headers(name, at, at + int(budget * 1e6)))
        self._write("ingress", sent if appended is None else appended, partition, pairs, encode_query(Query({"x": 1})))

    def outcome(self, name, at, timings, *, kind=PREDICTION, stage="", path=None, reason="expired"):
        pairs = encode(Headers(name, int(UNIX * 1e6), int(UNIX * 1e6), path=path or {}))
        told = "" if kind == PREDICTION else reason
        value = encode_outcome(Outcome(kind, reason=told, stage=stage, timings=timings))
        self._write("egress", at, 0, pairs, value)

    def garbage(self):
        """A message on the egress that is nobody's."""
        self._write("egress", 0.0, 0, [], b"?")

    def _write(self, topic, at, partition, pairs, value):
        self._offset += 1
        self._writer.write(
            Recorded(f"{self._name}.{topic}", partition, self._offset, UNIX + at, b"k", tuple(pairs), value)
        )


def served(taken, arrivals, seconds, budget, *, stage="a"):
    """One stage that serves one query after the other in `seconds`, `expired`: the exact truth of a simulation."""
    free, latencies = 0.0, []
    for number, sent in enumerate(arrivals):
        taken.query(f"q{number}", sent, budget=budget, partition=number % 4)
        # At most one forms while one runs; the others queue, and are judged when the batch before theirs starts.
        begins = max(sent, free)
        entered = sent if begins == sent else max(sent, begins - seconds)
        if sent + budget < entered:
            timings = [StageTiming(stage, entered - sent, 0.0, 0.0, 0)]
            taken.outcome(f"q{number}", entered, timings, kind=DROPPED, stage=stage)
            latencies.append(float("nan"))
            continue
        free = begins + seconds
        timings = [StageTiming(stage, entered - sent, begins - entered, seconds, 1)]
        taken.outcome(f"q{number}", free, timings)
        latencies.append(free - sent)
    return latencies
