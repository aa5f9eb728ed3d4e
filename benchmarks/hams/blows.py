"""What is done to the services to see how soon they go on: who is killed, and what the paper says of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchmarks.hams.services import SERVICES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.hams.services import Service

AHEAD = 50 * 64  # requests since the copy, where the paper kills a primary of Lineage Stash (section VI-D)
SELDOM = f"lineage-stash-{3 * AHEAD}"  # a copy each 150 batches of 64, as the paper's Lineage Stash
_RECOVERED = ("nspb", "remus", "lineage-stash")
_LEAST, _MOST = 3.0, 6.0  # seconds of load before and after a kill
_FEWEST_BEFORE, _FEWEST_AFTER = 6, 20  # queries, of a service that takes few a second
_FEW = 2.0  # queries a second, at which `AHEAD` of them would take half an hour


@dataclass(frozen=True, slots=True)
class Blow:
    """One thing that is done to a service. Stages by name.

    `primaries` are killed, of `backups` the backup, of `replicas` (which have no state) the replica. While `held`, that
    stage's states do not get to the log for a second before the kill. `standbys` get one. `ahead`: requests before it.
    """

    name: str
    service: str
    primaries: tuple[str, ...] = ()
    backups: tuple[str, ...] = ()
    replicas: tuple[str, ...] = ()
    standbys: tuple[str, ...] = ()
    held: str = ""
    ahead: int = 0
    stopped: bool = False  # by SIGSTOP: only silence tells
    mode: str = "nspb"
    paper_ms: float | None = None
    rate: float = 0.0  # queries a second

    @property
    def reigns(self) -> tuple[str, ...]:
        """The stages that have to begin a new epoch: a primary that has lost what it rested on begins one as well."""
        return self.primaries + self.backups

    @property
    def load(self) -> tuple[float, float]:
        return max(_LEAST, _FEWEST_BEFORE / self.rate), max(_MOST, _FEWEST_AFTER / self.rate)


def blows(names: Sequence[str], modes: Sequence[str], rate: float | None = None) -> list[Blow]:
    """All that is done to these services in these modes. What is not a single primary's death is done to nspb alone.

    `rate`: queries a second; None for each service's own.
    """
    made = []
    for name in names:
        own = SERVICES[name].rate if rate is None else rate
        others = [blow for blow in _OTHERS if blow.service == name and "nspb" in modes]
        made += [replace(blow, rate=own) for blow in _primaries(SERVICES[name], modes, own) + others]
    return made


def _primaries(service: Service, modes: Sequence[str], rate: float) -> list[Blow]:
    paper = {} if service.paper is None else dict(service.paper.recovery)
    seldom = paper.pop("lineage-stash", None)  # the paper's has more to compute again than 150 requests
    victim = (service.victim,)
    made = [
        Blow("primary", service.name, victim, mode=mode, paper_ms=paper.get(mode))
        for mode in _RECOVERED
        if mode in modes
    ]
    if "lineage-stash" in modes and rate > _FEW:
        name = f"primary, {AHEAD:,} requests after its copy"
        made.append(Blow(name, service.name, victim, ahead=AHEAD, mode=SELDOM, paper_ms=seldom))
    return made


_OTHERS = (
    Blow("primary, by silence alone", "bandit", ("bandit",), stopped=True),
    Blow("two adjacent primaries", "ap", ("track", "foresee"), paper_ms=172.24),
    Blow("Fig. 6", "ap", ("track",), backups=("foresee",), held="track", paper_ms=731.24),
    Blow("stateless, a standby", "ap", replicas=("detect",), standbys=("detect",), paper_ms=320.45),
    Blow("stateless and stateful", "fd", ("left",), replicas=("detect-left",), paper_ms=344.79),
    Blow(
        "stateless and stateful, a standby", "fd", ("left",), replicas=("detect-left",), standbys=("detect-left",),
        paper_ms=344.79,
    ),
)  # fmt: skip
