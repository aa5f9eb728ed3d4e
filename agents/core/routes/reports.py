"""What a front of a stage with variants tells their controller, every two seconds (INFaaS, section 4.2).

Of each variant: its workers, how many have died, the queries a second that came to it, each where it was routed first,
what its batches took, how long a query would wait; the queries a second that wanted one which is not active; and the
latency that an architecture's queries ask, of which one in ten asks less, so that one odd query decides nothing.

Pure: times are seconds of any clock that does not go back.
"""

from __future__ import annotations

import statistics
from collections import Counter
from typing import TYPE_CHECKING, Final

from spillway.topology.variants.controller import Report
from spillway.topology.variants.states import Told

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spillway.agents.core.routes.variants import Variants

_STILL: Final = 1e-3  # queries a second, of a variant that is waited for: it counts once, and keeps what loads
_STRICT: Final = 0.1  # of queries ask less


class Reporter:
    """Makes reports of what a route has counted, each since the one before."""

    def __init__(self, route: Variants, now: float, deaths: Mapping[str, int]) -> None:
        """`deaths`: how many workers of each variant have died until now."""
        self._route = route
        self._since = now
        self._deaths = dict(deaths)
        self._load, self._unmet = Counter(route.stats.load), Counter(route.stats.unmet)

    def report(
        self,
        now: float,
        alive: Mapping[str, int],
        deaths: Mapping[str, int],
        runs: Iterable[tuple[str, int, float]],
        waits: Mapping[str, float],
    ) -> Report:
        """What has come since the report before. `runs`: batches, by variant with their queries and seconds.

        `alive`: all of a variant's workers; `waits`: seconds that a query would wait in each lane that serves.
        """
        since = max(now - self._since, 1e-3)
        stats, ready = self._route.stats, self._route.ready()
        ran: dict[str, list[tuple[int, float]]] = {}
        for name, count, seconds in runs:
            ran.setdefault(name, []).append((count, seconds))
        told = {}
        for name in self._route.variants:
            batch, p50 = self._median(name, ran.get(name, []))
            told[name] = Told(
                ready=ready.get(name, 0),
                alive=alive.get(name, 0),
                died=deaths.get(name, 0) - self._deaths.get(name, 0),
                load=(stats.load[name] - self._load[name]) / since,
                p50=p50,
                batch=batch,
                wait=waits.get(name, 0.0),
            )
        unmet = {name: (count - self._unmet[name]) / since for name, count in stats.unmet.items()}
        still, self._route.waiting = self._route.waiting, set()
        for name in still:
            unmet[name] = max(unmet.get(name, 0.0), _STILL)
        lacking, self._route.lacking = self._route.lacking, set()
        self._since, self._deaths = now, dict(deaths)
        self._load, self._unmet = Counter(stats.load), Counter(stats.unmet)
        return Report(told, {name: rate for name, rate in unmet.items() if rate > 0}, self._slos(), lacking)

    def _median(self, name: str, ran: list[tuple[int, float]]) -> tuple[int, float | None]:
        """A batch's usual size, and what one of that size takes: by the median of times its profile."""
        if not ran:
            return 1, None
        variant = self._route.variants[name]
        batch = int(statistics.median_low(count for count, _ in ran))
        slower = statistics.median(seconds / variant.duration(count) for count, seconds in ran)
        return batch, slower * variant.duration(batch)

    def _slos(self) -> dict[tuple[str, str], float]:
        taken, self._route.latencies = self._route.latencies, {}
        apps = {each.architecture: each.app for each in self._route.variants.values()}
        return {
            (apps[architecture], architecture): sorted(found)[int(_STRICT * len(found))]
            for architecture, found in taken.items()
            if found
        }
