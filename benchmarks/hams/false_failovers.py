"""Whether a backup takes over while nothing is wrong: full load for minutes, with a lease of one second.

A closed loop keeps many queries in flight, so that every process has as much to do as the machine allows, and members,
broker, gate and client fight for its cores. Nobody is killed or stopped. Epochs are told by the claims in the control
log, which is never deleted: each claim beyond a shard's first is a failover.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.hams.cells import Cell, variant
from benchmarks.hams.services import SERVICES
from benchmarks.live_hops import messages
from benchmarks.output import Table
from benchmarks.scene import serve
from spillway.lineage.message import PREDICTION
from spillway.lineage.replication import Claim
from spillway.lineage.values.replication import ReplicationDecoder
from spillway.producers.client import Client
from spillway.producers.load.payloads import find_payload
from spillway.topology.topics import control

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.hams.services import Service
    from benchmarks.hams.setting import Setting

_NAMES = ("bandit", "ap")
_IN_FLIGHT = 512
_BATCH = 64  # at most
_TOLD = 60.0  # seconds between two words of progress


def load(client: Client, service: Service, seconds: float, say: Callable[[str], None]) -> Counter[bool]:
    """Send for as long, and wait for all outcomes; count those that are predictions, and those that are not."""
    began = told = time.monotonic()
    make, rng = find_payload(service.payload), np.random.default_rng(0)
    queries = (dict(make(number, rng)) for number in itertools.count())
    while_it_lasts = itertools.takewhile(lambda _: time.monotonic() - began < seconds, queries)
    name = service.key
    key = None if name is None else lambda query: str(query[name])
    found: Counter[bool] = Counter()
    for _, outcome in client.outcomes(while_it_lasts, key=key, window=_IN_FLIGHT):
        found[outcome.kind == PREDICTION] += 1
        if time.monotonic() - told > _TOLD:
            told = time.monotonic()
            say(f"{found[True]:,} answers in {told - began:.0f} s")
    return found


def measure_false_failovers(setting: Setting) -> dict[str, Any]:
    rows = []
    for name in _NAMES:
        if name not in setting.services:
            continue
        cell = Cell(SERVICES[name], "nspb", _BATCH)
        pipeline = variant(cell, setting.folder, setting.run(), gather=0.0)
        title = pipeline.spec.name
        with (
            serve(pipeline, setting.cluster, setting.folder / "run", say=setting.say),
            Client(pipeline.spec, setting.cluster, in_flight=2 * _IN_FLIGHT) as client,
        ):
            began = time.monotonic()
            came = load(client, cell.service, 60 * setting.minutes, setting.say)
            took = time.monotonic() - began
            claims = _claims(setting, title)
        row = {
            "service": name,
            "leases": sorted({stage.required_state.lease for stage in pipeline.spec.stages if stage.replicated}),
            "minutes": setting.minutes,
            "seconds": round(took, 1),
            "answered": came[True],
            "others": came[False],
            "claims": [{"stage": claim.stage, "epoch": claim.epoch, "reason": claim.reason} for claim in claims],
            "failovers": len({(claim.stage, claim.shard, claim.epoch) for claim in claims if claim.epoch > 1}),
        }
        setting.say(f"{name}: {row['failovers']} failovers, {came[True] / took:.0f} answers a second")
        rows.append(row)
    return {"in_flight": _IN_FLIGHT, "rows": rows}


def _claims(setting: Setting, pipeline: str) -> list[Claim]:
    """All claims in the control log, in order."""
    decoder = ReplicationDecoder()
    values = [message.value() for message in messages(setting.cluster, control(pipeline), 1)]
    found = [decoder.record(value) for value in values if value is not None]
    return [record for record in found if isinstance(record, Claim)]


def tables(result: dict[str, Any]) -> list[Table]:
    rows = [
        [
            SERVICES[row["service"]].title,
            ", ".join(f"{lease:g} s" for lease in row["leases"]),
            f"{row['minutes']:g}",
            f"{row['answered'] / row['seconds']:.0f}",
            str(row["others"]),
            str(row["failovers"]),
        ]
        for row in result["rows"]
    ]
    return [
        Table(
            f"Failovers while nothing was wrong, {result['in_flight']} queries in flight",
            ("service", "lease", "minutes", "answers a second", "no answers", "failovers"),
            rows,
        )
    ]
