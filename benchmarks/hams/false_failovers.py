"""Whether a backup takes over while nothing is wrong: full load for minutes, with a lease of one second.

A closed loop keeps many queries in flight, so that every process has as much to do as the machine allows, and members,
broker, gate and client fight for its cores. Nobody is killed or stopped. Epochs are told by the claims in the control
log, which is never deleted: each claim beyond a shard's first is a failover.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.hams.cells import Cell, variant
from benchmarks.hams.services import SERVICES
from benchmarks.live_hops import messages
from benchmarks.output import Table
from benchmarks.scene import serve
from spillway.lineage.errors import SpillwayError
from spillway.lineage.message import PREDICTION
from spillway.lineage.replication import Claim
from spillway.lineage.values.replication import ReplicationDecoder
from spillway.producers.client import Client
from spillway.producers.load.payloads import find_payload
from spillway.topology.topics import control

if TYPE_CHECKING:
    from concurrent.futures import Future

    from benchmarks.hams.services import Service
    from benchmarks.hams.setting import Setting
    from spillway.lineage.message import Outcome

_NAMES = ("bandit", "ap")
_IN_FLIGHT = 512
_BATCH = 64  # at most
_GRACE = 60.0
_TOLD = 60.0  # seconds between two words of progress


class Load:
    """Queries in a closed loop; counts what they come to."""

    def __init__(self, client: Client, service: Service) -> None:
        self._client = client
        self._payload = find_payload(service.payload)
        self._key = service.key
        self._rng = np.random.default_rng(0)
        self._room = threading.Semaphore(_IN_FLIGHT)
        self._lock = threading.Lock()
        self.sent = self.answered = self.others = 0

    def run(self, seconds: float, say: Any) -> None:
        """Send for as long, then wait for all outcomes. Raises SpillwayError where some do not come."""
        began = told = time.monotonic()
        while time.monotonic() - began < seconds:
            self._room.acquire()
            query = dict(self._payload(self.sent, self._rng))
            key = None if self._key is None else str(query[self._key])
            self._client.submit(query, key=key).add_done_callback(self._done)
            self.sent += 1
            if time.monotonic() - told > _TOLD:
                told = time.monotonic()
                say(f"{self.answered:,} answers in {told - began:.0f} s")
        deadline = time.monotonic() + _GRACE
        while self.answered + self.others < self.sent:
            if time.monotonic() > deadline:
                raise SpillwayError(f"{self.sent - self.answered - self.others} of {self.sent} queries got no outcome")
            time.sleep(0.05)

    def _done(self, future: Future[Outcome]) -> None:
        error = future.exception()
        good = error is None and future.result().kind == PREDICTION
        with self._lock:
            self.answered += good
            self.others += not good
        self._room.release()


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
            load = Load(client, cell.service)
            began = time.monotonic()
            load.run(60 * setting.minutes, setting.say)
            took = time.monotonic() - began
            claims = _claims(setting, title)
        row = {
            "service": name,
            "leases": sorted({stage.required_state.lease for stage in pipeline.spec.stages if stage.replicated}),
            "minutes": setting.minutes,
            "seconds": round(took, 1),
            "answered": load.answered,
            "others": load.others,
            "claims": [{"stage": claim.stage, "epoch": claim.epoch, "reason": claim.reason} for claim in claims],
            "failovers": len({(claim.stage, claim.shard, claim.epoch) for claim in claims if claim.epoch > 1}),
        }
        setting.say(f"{name}: {row['failovers']} failovers, {load.answered / took:.0f} answers a second")
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
