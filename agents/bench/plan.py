"""What the exchange of states costs and how well it works: bytes on the wire, age of what policies go by, silence.

Each stage is a process with the live planner around a made-up queue (`agents.bench.plan_member`). In turn for each
period: all run; then one is stopped with SIGSTOP and goes on later. Nothing but the exchange uses the cluster.

Run as `spillway bench plan`, or `python -m agents.bench.plan`.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import click

from agents.bench.plan_member import DURATION, QUEUEING
from agents.broker import EmbeddedBroker
from agents.cli.options import bootstrap_option, client_config_option, json_option
from agents.live.topics import ensure
from lineage.errors import SpillwayError
from producers.connection import ClientSettings
from topology.spec import PipelineSpec
from topology.topics import plan as plan_topic
from topology.topics import topic_plan

PERIODS = (1.0, 0.1)
STATED = 3_200.0  # bits a second per worker, at 1 Hz (PARD, section 5.5)
_WARM = 4.0
_HEADERS_BYTES = 52  # of IP and TCP with timestamps, for each request and each response
_WITHIN = 30.0


@dataclass
class Row:
    """One period's figures. Durations in seconds; bits a second for one replica."""

    period: float
    stages: int
    said_bits: float = 0.0  # produce requests and their answers
    heard_bits: float = 0.0  # fetches: polls and the words of all
    said_wire_bits: float = 0.0  # with IP's and TCP's headers
    heard_wire_bits: float = 0.0
    merged_p50: float = 0.0  # age of others' words when the policy gets them
    merged_p99: float = 0.0
    held_p50: float = 0.0  # at any moment: of the words that the policy goes by
    held_p99: float = 0.0
    say_ms: float = 0.0  # of processor, median
    merge_ms: float = 0.0
    silence: dict[str, float] = field(default_factory=dict)


@click.command()
@bootstrap_option
@client_config_option
@click.option("--stages", type=click.IntRange(2, 20), default=5, show_default=True, help="One replica of each.")
@click.option("--seconds", type=click.FloatRange(2.0), default=20.0, show_default=True, help="Of each measurement.")
@click.option("--period", "periods", type=click.FloatRange(0.02), multiple=True, help="Seconds.  [default: 1 and .1]")
@json_option
def plan(
    bootstrap: str | None,
    client_config: Path | None,
    stages: int,
    seconds: float,
    periods: tuple[float, ...],
    *,
    as_json: bool,
) -> None:
    """Measure the exchange of states between stages: its bytes, the age of what is known, and a stage's silence.

    Uses a Kafka of its own unless --bootstrap names one.

    \b
    Example: spillway bench plan --seconds 10 --period 0.1
    """  # noqa: D301 - click's own marks
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spillway-bench-")))
        if bootstrap is None:
            bootstrap = stack.enter_context(EmbeddedBroker(folder / "kafka")).bootstrap
        settings = ClientSettings.load(bootstrap, client_config)
        rows = [measure(settings, folder, stages, period, seconds) for period in periods or PERIODS]
    click.echo(json.dumps([asdict(row) for row in rows], indent=2) if as_json else _text(rows))


def measure(settings: ClientSettings, folder: Path, stages: int, period: float, seconds: float) -> Row:
    """Measure one period: the exchange at rest, and then with one stage silent for a while."""
    row = Row(period, stages)
    with Company(settings, folder, stages, period, seconds) as company:
        ends = company.finish()
    _bytes(row, ends)
    _ages(row, [merge for member in company.merges() for merge in member])
    with Company(settings, folder, stages, period, 3600.0) as company:
        row.silence = _silence(company, period)
    return row


class Company:
    """A process for each stage of a chain; ends with the block."""

    def __init__(self, settings: ClientSettings, folder: Path, stages: int, period: float, seconds: float) -> None:
        self._names = [f"stage{number}" for number in range(stages)]
        self._seconds = seconds
        name = f"bench-{uuid.uuid4().hex[:8]}"
        spec = PipelineSpec.model_validate({"name": name, "slo": 1.0, "stages": [{"name": "a", "model": "m:M"}]})
        ensure(settings, [topic for topic in topic_plan(spec) if topic.name == plan_topic(name)])
        told = {
            "bootstrap": settings.bootstrap, "pipeline": name, "stages": self._names, "period": period,
            "warm": _WARM, "seconds": seconds,
        }  # fmt: skip
        self._files = [folder / f"{name}.{stage}.jsonl" for stage in self._names]
        self.members = [
            _started(file, {**told, "stage": stage}) for stage, file in zip(self._names, self._files, strict=True)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.kill()
            member.wait()

    def finish(self) -> list[dict[str, Any]]:
        """Wait for the end; return each member's count of bytes."""
        for member in self.members:
            if member.wait(self._seconds + _WARM + _WITHIN):
                raise SpillwayError(f"a member of the benchmark ended with {member.returncode}")
        return [_lines(file)[-1] for file in self._files]

    def merges(self) -> list[list[dict[str, Any]]]:
        """What each member knew at each merge so far, without those of the beginning."""
        return [[line for line in _lines(file) if "at" in line][5:] for file in self._files]

    def await_merge(self, member: int, wanted: Any, since: float) -> dict[str, Any]:
        until = time.monotonic() + _WITHIN
        while time.monotonic() < until:
            for merge in _lines(self._files[member]):
                if merge.get("at", 0.0) > since and wanted(merge):
                    return merge
            time.sleep(0.02)
        raise SpillwayError(f"{self._names[member]} did not merge what was awaited within {_WITHIN:g} s")


def _started(file: Path, told: dict[str, Any]) -> subprocess.Popen[bytes]:
    with file.open("wb") as out:
        return subprocess.Popen([sys.executable, "-m", "agents.bench.plan_member", json.dumps(told)], stdout=out)


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]


def _bytes(row: Row, ends: list[dict[str, Any]]) -> None:
    for side in ("said", "heard"):
        kafka = wire = 0.0
        for end in ends:
            counted, seconds = end[side], end["seconds"]
            size = counted["sent_bytes"] + counted["received_bytes"]
            kafka += 8 * size / seconds
            wire += 8 * (size + _HEADERS_BYTES * (counted["requests"] + counted["responses"])) / seconds
        setattr(row, f"{side}_bits", kafka / len(ends))
        setattr(row, f"{side}_wire_bits", wire / len(ends))


def _ages(row: Row, merges: list[dict[str, Any]]) -> None:
    ages = [age for merge in merges for age in merge["ages"].values()]
    # Until the next merge a policy goes by the same words, which grow older meanwhile.
    held = [age + row.period * step / 20 for age in ages for step in range(21)]
    row.merged_p50, row.merged_p99 = _quantile(ages, 0.5), _quantile(ages, 0.99)
    row.held_p50, row.held_p99 = _quantile(held, 0.5), _quantile(held, 0.99)
    row.say_ms = 1000 * _quantile([merge["say"] for merge in merges], 0.5)
    row.merge_ms = 1000 * _quantile([merge["merge"] for merge in merges], 0.5)


def _silence(company: Company, period: float) -> dict[str, float]:
    """Stop the last stage, and see when and how the first one's estimate follows; then let it go on."""
    everybody = len(company.members) - 1
    before = company.await_merge(0, lambda merge: len(merge["ages"]) == everybody, 0.0)
    time.sleep(2 * period)
    stopped = time.time()
    company.members[-1].send_signal(signal.SIGSTOP)
    after = company.await_merge(0, lambda merge: len(merge["ages"]) < everybody, stopped)
    resumed = time.time()
    company.members[-1].send_signal(signal.SIGCONT)
    again = company.await_merge(0, lambda merge: len(merge["ages"]) == everybody, resumed)
    return {
        "noticed_s": after["at"] - stopped,
        "heard_again_s": again["at"] - resumed,
        **{f"{name}_ms_before": 1000 * value for name, value in zip(_TERMS, before["later"], strict=True)},
        **{f"{name}_ms_silent": 1000 * value for name, value in zip(_TERMS, after["later"], strict=True)},
        **{f"{name}_ms_again": 1000 * value for name, value in zip(_TERMS, again["later"], strict=True)},
    }


_TERMS = ("queueing", "execution", "waits")


def _quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def _text(rows: list[Row]) -> str:
    return "\n".join(line for row in rows for line in (*_exchange(row), *_silenced(row), ""))


def _exchange(row: Row) -> list[str]:
    paper = f" (paper: below {STATED / 1000:g} per worker)" if row.period == 1.0 else ""
    return [
        f"a word each {row.period:g} s, {row.stages} stages of one replica",
        f"  kbit/s             a replica says {_bits(row.said_bits, row.said_wire_bits)}{paper}",
        f"                     and hears {_bits(row.heard_bits, row.heard_wire_bits)}, of all {row.stages}",
        f"  age of words       p50 {1000 * row.merged_p50:.0f} ms, p99 {1000 * row.merged_p99:.0f} ms when merged",
        f"                     p50 {1000 * row.held_p50:.0f} ms, p99 {1000 * row.held_p99:.0f} ms while gone by",
        f"  processor          {row.say_ms:.2f} ms to say, {row.merge_ms:.2f} ms to merge and estimate anew",
    ]


def _silenced(row: Row) -> list[str]:
    silence = row.silence
    noticed, again = silence["noticed_s"], silence["heard_again_s"]
    lines = [
        f"  last stage stops   noticed after {noticed:.2f} s, heard again after {again:.2f} s",
        f"    each stage says  {1000 * QUEUEING:g} ms of queueing, batches of {1000 * DURATION:g} ms",
    ]
    for name in _TERMS:
        before, silent, later = (silence[f"{name}_ms_{when}"] for when in ("before", "silent", "again"))
        lines.append(
            f"    {name:10}       of all later stages {before:.0f} ms, then {silent:.0f} ms, then {later:.0f} ms"
        )
    return lines


def _bits(kafka: float, wire: float) -> str:
    return f"{kafka / 1000:.2f}, {wire / 1000:.2f} with the headers of TCP and IP"


if __name__ == "__main__":
    plan()
