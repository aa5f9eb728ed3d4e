"""getVariant: which variant answers a query, and which has to be loaded (INFaaS, section 4.1).

In this order:

1. of the active variants that meet the query's needs, the least loaded;
2. else the inactive one that meets them with the least loading and inference time;
3. else none meets them: the closest is suggested.

Variants that are overloaded or interfered are not active ones here; where nothing inactive is left that meets the
needs, the least loaded of them is, for they serve. `on_miss` says who answers while 1. finds nothing:

* `wait`: the one of 2. does, as in the paper, when it is loaded;
* `closest`: a marked variant that meets the needs, else the one of 2. if it is loaded in time, else the active variant
  that comes closest;
* `fail`: a marked variant that meets the needs, else none, unless the one of 2. is loaded in time.

`budget` says what is compared with the latency that is asked: `static`, a variant's profiled latency, as in the paper;
`remaining`, ours, its latency and the wait in its lane, with what is left of the latency. An accuracy is a minimum.

A pool sorts an application's variants by latency, so a bisection leaves those that are fast enough, and one pass in
numpy the rest.
"""

from __future__ import annotations

from bisect import bisect_right
from copy import copy
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from spillway.lineage.errors import UsageError
from spillway.topology import names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from numpy.typing import NDArray

    from spillway.topology.variant_sections import Budget, OnMiss
    from spillway.topology.variants.needs import Needs
    from spillway.topology.variants.variant import Variant

_EXACT: Final = 1e-12


class Status(NamedTuple):
    """How a variant is doing."""

    serves: bool = False  # a worker is ready
    marked: bool = False  # it is overloaded or interfered
    load: float = 0.0  # of what its workers can do at their peak
    wait: float = 0.0  # seconds in its lane, as expected
    loading: float | None = None  # seconds until a worker is ready; None: those of the profile
    usable: bool = True  # it may be loaded: it has not failed just now
    slower: float = 1.0  # than its profile, as measured where that is stale


class How(StrEnum):
    """How a variant was found."""

    ACTIVE = "active"
    MARKED = "marked"
    LOADING = "loading"  # the query waits for it to be loaded
    CLOSEST = "closest"  # it does not meet the needs
    NONE = "none"


class Choice(NamedTuple):
    """Who answers a query."""

    variant: str | None  # None: nobody
    how: How
    load: str | None = None  # a variant to be loaded for it
    suggestion: str | None = None  # what comes closest, where nothing registered meets the needs


class _App:
    """The variants of one application, by latency."""

    def __init__(self, variants: list[Variant]) -> None:
        self.variants = sorted(variants, key=lambda each: (each.latency, each.name))
        self.names = [each.name for each in self.variants]
        self.places = {name: place for place, name in enumerate(self.names)}
        count = len(self.variants)
        self.profiled = np.array([each.latency for each in self.variants])
        self.accuracy = np.array([each.accuracy for each in self.variants])
        self.latency = self.profiled.copy()
        self.sorted = self.profiled.tolist()  # no greater than `latency`: a profile is only ever too fast
        self.loading = np.array([each.load for each in self.variants])
        self.load = np.zeros(count)
        self.wait = np.zeros(count)
        self.serves = np.zeros(count, bool)
        self.clear = np.zeros(count, bool)  # it serves and has no mark
        self.usable = np.ones(count, bool)
        self.models: dict[str, NDArray[np.bool_]] = {
            model: np.array([each.architecture == model for each in self.variants])
            for model in {each.architecture for each in self.variants}
        }

    def without(self, variants: Collection[str]) -> _App:
        """The same where these neither serve nor can be loaded."""
        other = copy(self)
        places = [self.places[name] for name in variants if name in self.places]
        other.serves, other.clear, other.usable = self.serves.copy(), self.clear.copy(), self.usable.copy()
        for each in (other.serves, other.clear, other.usable):
            each[places] = False
        return other


class Selection:
    """What there is to select from. Tell it of every change (`update`), then ask (`choose`)."""

    def __init__(self, variants: Iterable[Variant], on_miss: OnMiss = "closest", budget: Budget = "remaining") -> None:
        self.on_miss, self.budget = on_miss, budget
        by_app: dict[str, list[Variant]] = {}
        for variant in variants:
            by_app.setdefault(variant.app, []).append(variant)
        self._apps = {app: _App(of) for app, of in by_app.items()}
        self._app_of = {name: app for app in self._apps.values() for name in app.names}

    def update(self, variant: str, status: Status) -> None:
        """Take note of how a variant is doing. Raises UsageError for one that is not registered."""
        app = self._app_of.get(variant)
        if app is None:
            raise UsageError(f"there is no variant {variant!r:.80}; {names.meant(variant, self._app_of)}")
        place = app.places[variant]
        app.latency[place] = app.profiled[place] * max(1.0, status.slower)
        app.loading[place] = app.variants[place].load if status.loading is None else status.loading
        app.load[place], app.wait[place] = status.load, status.wait
        app.serves[place], app.clear[place] = status.serves, status.serves and not status.marked
        app.usable[place] = status.usable

    def wait(self, variant: str, seconds: float) -> None:
        """Take note of how long a lane is now; a query that is sent there changes it before the next report."""
        app = self._app_of[variant]
        app.wait[app.places[variant]] = seconds

    def choose(self, needs: Needs, remaining: float | None = None, without: Collection[str] = ()) -> Choice:
        """Say who answers a query, `remaining` seconds before its deadline, where it has one.

        `without`: those that have refused it.

        Raises UsageError for an application, a model or a variant that is not registered.
        """
        app = self._apps.get(needs.app)
        if app is None:
            raise UsageError(f"app: there is no application {needs.app!r:.80}; {names.meant(needs.app, self._apps)}")
        named = _named(app, needs)
        if without:
            app = app.without(without)
        asked = needs.latency
        left = asked if self.budget == "static" or remaining is None else remaining
        fast = len(app.names) if asked is None else bisect_right(app.sorted, asked + _EXACT)
        meets = _meets(app, needs, named, fast)
        active = meets & app.clear[:fast]
        if left is not None and self.budget == "remaining":
            active &= app.latency[:fast] + app.wait[:fast] <= left + _EXACT
        found = _least(active, app.load)
        if found is not None:
            return Choice(app.names[found], How.ACTIVE)
        return self._missed(app, needs, meets, named, left)

    def considered(self, needs: Needs, most: int) -> list[str]:
        """Some variants of the application: first those that meet the needs, of these first those that serve."""
        app = self._apps[needs.app]
        meets = _meets(app, needs, _named(app, needs), len(app.names))
        order = np.lexsort((app.latency, ~app.serves, ~meets))
        return [app.names[place] for place in order[:most]]

    def _missed(
        self, app: _App, needs: Needs, meets: NDArray[np.bool_], named: NDArray[np.bool_] | None, left: float | None
    ) -> Choice:
        fast = len(meets)
        total = app.loading + app.latency
        inactive = _least(meets & ~app.serves[:fast] & app.usable[:fast], total)
        marked = _least(meets & app.serves[:fast], app.wait if self.budget == "remaining" else app.load)
        load = None if inactive is None else app.names[inactive]
        if load is not None and (self.on_miss == "wait" or (marked is None and self._in_time(total[inactive], left))):
            return Choice(load, How.LOADING, load)
        if marked is not None:
            return Choice(app.names[marked], How.MARKED, load)
        suggestion = _closest(app, needs, named, app.usable) if load is None else None
        if self.on_miss != "closest":
            return Choice(None, How.NONE, load, suggestion)
        closest = _closest(app, needs, named, app.serves)
        if closest is not None:
            return Choice(closest, How.CLOSEST, load, suggestion)
        if load is not None:
            return Choice(load, How.LOADING, load)
        return Choice(suggestion, How.CLOSEST if suggestion else How.NONE, suggestion, suggestion)

    @staticmethod
    def _in_time(total: float, left: float | None) -> bool:
        return left is None or total <= left + _EXACT


def _named(app: _App, needs: Needs) -> NDArray[np.bool_] | None:
    """The variants of the model, or the one variant, that a query names; None where it names neither."""
    if needs.variant is not None:
        if needs.variant not in app.places:
            meant = names.meant(needs.variant, app.names)
            raise UsageError(f"variant: {needs.app!r} has no variant {needs.variant!r:.80}; {meant}")
        one: NDArray[np.bool_] = np.arange(len(app.names)) == app.places[needs.variant]
        return one
    if needs.model is not None:
        if needs.model not in app.models:
            meant = names.meant(needs.model, app.models)
            raise UsageError(f"model: {needs.app!r} has no model {needs.model!r:.80}; {meant}")
        return app.models[needs.model]
    return None


def _meets(app: _App, needs: Needs, named: NDArray[np.bool_] | None, fast: int) -> NDArray[np.bool_]:
    """Which of the `fast` first meet a query's needs."""
    meets: NDArray[np.bool_] = app.accuracy[:fast] >= needs.accuracy - _EXACT
    if needs.latency is not None:
        meets &= app.latency[:fast] <= needs.latency + _EXACT
    if named is not None:
        meets &= named[:fast]
    return meets


def _least(mask: NDArray[np.bool_], of: NDArray[np.float64]) -> int | None:
    """Where `of` is least among what the mask allows; of several the fastest."""
    places = np.flatnonzero(mask)
    return int(places[of[places].argmin()]) if len(places) else None


def _closest(app: _App, needs: Needs, named: NDArray[np.bool_] | None, of: NDArray[np.bool_]) -> str | None:
    """What misses the needs by the least share of them, latency and accuracy together; of several the least loaded."""
    places = np.flatnonzero(of if named is None else of & named)
    if not len(places):
        return None
    short: Any = np.maximum(0.0, needs.accuracy - app.accuracy[places]) / max(needs.accuracy, _EXACT)
    if needs.latency is not None:
        short = short + np.maximum(0.0, app.latency[places] / needs.latency - 1.0)
    name: str = app.names[places[np.lexsort((app.load[places], short))[0]]]
    return name
