"""How few requests any policy could drop: a lower bound from a clairvoyant, idealised server for each stage alone.

Each stage is looked at as if it were the only one that can be short of capacity. Its workers are one server that
shares its time freely and without loss among the requests present, at the speed of full batches: `workers * batch /
duration(batch)` requests a second. A request reaches it after the stages before it took a batch of one each, along
the slowest way, and must have left it early enough for those behind to do the same: the window is the SLO less the
durations of batches of one on the slowest way to the stage and the slowest way on from it (and less the hops). What
the best schedule of this server cannot finish within the windows is dropped; the bound is the worst stage's count.

Why no policy does better. Whatever runs on the real workers is a schedule of the idealised server too: a batch of n
costs `duration(n)` seconds of a worker, no less per request than a full one as long as `duration(n) / n` falls with n
(else the cheapest size counts), and no request reaches a stage sooner or leaves the ones behind it later than said.
It makes no difference how requests are dispatched: with a queue per worker each worker runs a part of the schedule,
with a central queue (dispatch `shared`, the live model) the workers still are no faster together than the one server
that is all of them. All requests want the same service in windows of the same length, so serving in the order of
arrival and refusing exactly those that would end too late keeps as many as any order could: an exchange of two
requests never makes a later end. Hence the bound holds for every dispatch; it is that of PARD's reference.

Where requests choose among branches, or a join does without some of them, not every request passes every stage. Then
only the stages that all ways pass are looked at, and the rest of a way counts as the shortest: the bound stays one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from spillway.agents.core.join_rules import Rule
from spillway.agents.sim.plan import plan_of
from spillway.lineage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from spillway.topology.load import Pipeline
    from spillway.topology.routing import Graph

_ROUNDING = 1e-9  # seconds; sums of times are not exact, and a bound must not be above what can be done
STRICT = Rule()  # a join that wants every branch, as the rule for the stages before it


@dataclass(frozen=True, slots=True)
class Server:
    """A stage as the bound sees it: its greatest speed, and the time that the rest of the pipeline takes at least."""

    name: str
    batch: int  # the largest
    workers: int
    duration: Callable[[int], float]  # seconds of a batch of n

    @property
    def rate(self) -> float:
        """Requests per second with the size of batch that costs the least per request."""
        return self.workers * max(n / self.duration(n) for n in range(1, self.batch + 1))

    @property
    def least(self) -> float:
        return min(self.duration(n) for n in range(1, self.batch + 1))


@dataclass(frozen=True, slots=True)
class Bound:
    """What no policy can do better than."""

    requests: int
    drops: Mapping[str, int]  # by stage, if it alone were short of capacity

    @property
    def least(self) -> int:
        return max(self.drops.values(), default=0)

    @property
    def rate(self) -> float:
        return self.least / self.requests if self.requests else 0.0


def of(
    pipeline: Pipeline,
    arrivals: ArrayLike,
    workers: Sequence[int] | None = None,
    *,
    slo: float | None = None,
    hop: float = 0.0,
) -> Bound:
    """Bound the drops of `arrivals` (sorted seconds) at `pipeline` with emulated stages.

    `workers` (by stage, in the spec's order) and `slo` (seconds) stand in for the spec's; `hop` is what a message takes
    from the sender to a stage, between stages and back. Raises UsageError where a stage has no profile.
    """
    spec = pipeline.spec
    plan = plan_of(
        pipeline,
        workers=workers,
        dispatch="shared",
        policy="naive",
        slo=slo,
        choices={},
        durations={},
        hop_delay=hop,
        batches={},
    )
    servers = [Server(stage.name, stage.batch, stage.queues * stage.instances, stage.duration) for stage in plan.stages]
    # Whether a request is good only if every stage served it.
    strict = all(stage.choose is None for stage in spec.stages) and plan.sinks == "all"
    strict = strict and all(rule == STRICT for rule in plan.joins.values())
    graph = plan.graph
    times = np.asarray(arrivals, np.float64)
    if (np.diff(times) < 0).any():
        raise UsageError("arrivals must be sorted")
    least = {server.name: server.least for server in servers}
    before = ways(graph.order, graph.predecessors, least, hop, longest=strict)
    after = ways(tuple(reversed(graph.order)), _sends(graph), least, hop, longest=strict)
    drops = {}
    for server in servers:
        if strict or _inevitable(graph, server.name):
            window = plan.slo - before[server.name] - after[server.name]
            late = window < server.least
            drops[server.name] = len(times) if late else overdue(times, 1.0 / server.rate, window)
    return Bound(len(times), drops)


def ways(
    order: Sequence[str],
    neighbours: Mapping[str, Sequence[str | None]],
    least: Mapping[str, float],
    hop: float,
    *,
    longest: bool,
) -> dict[str, float]:
    """Seconds that pass at least between the pipeline's edge and each stage, the stage itself left out.

    `order` has the neighbours of a stage before it. The edge, None among them, is one hop away.
    """
    pick = max if longest else min
    found: dict[str, float] = {}
    for name in order:
        times = (0.0 if each is None else found[each] + least[each] for each in neighbours[name])
        found[name] = hop + pick(times, default=0.0)
    return found


def _sends(graph: Graph) -> dict[str, tuple[str | None, ...]]:
    return {
        name: (*successors, None) if graph.is_chooser(name) else tuple(successors)
        for name, successors in graph.successors.items()
    }


def _inevitable(graph: Graph, stage: str) -> bool:
    sends = _sends(graph)
    reached: set[str] = set()
    ahead = [name for name in graph.roots if name != stage]
    while ahead:
        name = ahead.pop()
        if not sends[name] or None in sends[name]:
            return False
        reached.add(name)
        ahead += [each for each in sends[name] if each is not None and each != stage and each not in reached]
    return True


def overdue(times: NDArray[np.float64], service: float, window: float) -> int:
    """Count what one server cannot end within `window` seconds of its coming, `service` seconds each, at best."""
    if service > window:
        return len(times)
    drops = 0
    free = -np.inf  # when the server has done all that it took on
    patience = window - service + _ROUNDING
    for time in times.tolist():
        if free <= time:
            free = time + service
        elif free <= time + patience:
            free += service
        else:
            drops += 1
    return drops
