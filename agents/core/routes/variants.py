"""One of several variants behind one stage: the one that meets what a query needs (INFaaS, section 4.1).

Which one, `spillway.topology.variants.selection` says. It is told of each lane (`spillway.agents.core.lanes`) what is
known here: whether a worker serves, how long a query would wait, how much came in the last second. What a controller
knows beside that, marks and loading times, it says itself (`note`).

A query that its variant refuses is routed once more, to what else there is. One whose variant has yet to be loaded
waits without a lane, and is asked anew when a worker comes. One that nobody may answer is refused.

Pure: a query says when it is asked.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from spillway.agents.core.policy import Refusal
from spillway.agents.core.routes.ensemble import Joint
from spillway.lineage import reasons
from spillway.lineage.errors import UsageError
from spillway.topology.variants.needs import Needs, named
from spillway.topology.variants.selection import How, Selection, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from spillway.agents.core.query import Query
    from spillway.agents.core.request import Request
    from spillway.topology.variant_sections import Budget, OnMiss
    from spillway.topology.variants.selection import Choice
    from spillway.topology.variants.variant import Variant

_LOOK: Final = 1.0  # seconds over which a variant's load is counted
_LATE: Final = 1e-6
_KEPT: Final = 1_000
_TOLD: Final = 8  # variants, of those that were considered
_ALIKE: Final = 0.1  # seconds within which a choice like the one before went by the same
WHY: Final = "why"
"""The flag that says what a choice went by: `of`, by variant [state, load, wait, latency, accuracy], in seconds;
`others`, how many variants are not told; `load`, which was to be loaded for the query."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A variant's answer: its outputs, what its model said of them, and the queries of its batch."""

    outputs: Mapping[str, Any]
    flags: Mapping[str, Any] | None = None
    batch: int = 1


@dataclass(slots=True)
class Counts:
    """What a route of variants counted since it began."""

    asked: Counter[str] = field(default_factory=Counter)  # by variant
    load: Counter[str] = field(default_factory=Counter)  # of them, those that had not been routed before
    found: Counter[str] = field(default_factory=Counter)  # by how (`How`)
    unmet: Counter[str] = field(default_factory=Counter)  # by variant that was wanted and is not active
    answered: int = 0
    met: int = 0  # of them, those that had what they asked for


@dataclass(slots=True)
class _Note:
    """What is known of a query."""

    needs: Needs
    choice: Choice | None = None
    of: dict[str, Variant] = field(default_factory=dict)
    """The variants that it was given to, as they were then."""
    version: str | None = None
    why: dict[str, Any] = field(default_factory=dict)


class Variants:
    """The route of a stage with variants (`spillway.agents.core.query.Route`)."""

    wait = float("inf")
    rules = None

    def __init__(
        self,
        variants: Iterable[Variant],
        needs_of: Callable[[Request], Needs],
        *,
        on_miss: OnMiss = "closest",
        budget: Budget = "remaining",
        versions: Mapping[str, str] | None = None,
    ) -> None:
        """`needs_of` gives what a query asks, which was checked when it was read; `versions` those of variants."""
        self.variants = {each.name: each for each in variants}
        self.selection = Selection(self.variants.values(), on_miss, budget)
        self.stats = Counts()
        self.waits: Callable[[float], Mapping[str, float]] = lambda _: {}
        """Seconds that a query would wait in each lane that serves, at some time; and `ready`, the workers there."""
        self.ready: Callable[[], Mapping[str, int]] = dict
        self._needs_of = needs_of
        self._versions = versions or {}
        self.waiting: set[str] = set()
        """The variants that queries were still waiting for when they were asked again; whoever reports it takes it."""
        self.lacking: set[str] = set()
        """The variants that queries need and that no other of their model which serves can stand in for; as above."""
        self.latencies: dict[str, deque[float]] = {}
        """Those that queries had when they were asked, by architecture; whoever reports them takes them."""
        self._noted: dict[str, Status] = {}
        self._known: dict[str, Status] = {}
        self._whys: dict[tuple[Needs, Choice], dict[str, Any]] = {}
        self._whys_since = 0.0
        self._cheap: dict[Needs, str | None] = {}
        self._loads: dict[str, float] = {}
        self._counted: Counter[str] = Counter()
        self._looked = 0.0

    def replace(self, variants: Iterable[Variant], versions: Mapping[str, str]) -> None:
        """Have other variants from now on; those that are asked already may still answer."""
        self.variants = {each.name: each for each in variants}
        self.selection = Selection(self.variants.values(), self.selection.on_miss, self.selection.budget)
        self._versions, self._whys, self._cheap = versions, {}, {}
        self.waiting &= self.variants.keys()
        self.lacking &= self.variants.keys()
        models = {each.architecture for each in self.variants.values()}
        self.latencies = {model: found for model, found in self.latencies.items() if model in models}

    def note(self, statuses: Mapping[str, Status]) -> None:
        """Take what a controller knows of variants; what is seen here stands before it."""
        self._noted = dict(statuses)

    def select(self, query: Query, lanes: Sequence[str]) -> Mapping[str, float]:
        """Name the one variant that answers; none where it has no worker yet, or nobody may answer."""
        note = query.note
        if note is None:
            note = query.note = _Note(self._needs_of(query.request))
        self._update(query.asked_at)
        try:
            choice = self._choose(query, note.needs)
        except UsageError as error:  # what it names went while it waited
            query.refused = Refusal(reasons.NO_VARIANT, str(error))
            return {}
        if query.request.offline:
            return self._select_offline(query, note, choice, lanes)
        first, note.choice = note.choice is None, choice
        if choice.load is not None and self._is_lacking(note.needs, choice):
            self.lacking.add(choice.load)
        if first:
            self.stats.found[choice.how] += 1
            self._want(note.needs, choice, query.request.deadline - query.request.sent)
        elif choice.how is How.LOADING and choice.variant is not None:
            self.waiting.add(choice.variant)
        if choice.variant is None:
            query.refused = Refusal(reasons.NO_VARIANT, self._words(note.needs, choice))
            return {}
        if choice.variant not in lanes:
            return {}
        self.stats.asked[choice.variant] += 1
        self.stats.load[choice.variant] += first
        return self._chosen(query, note, choice)

    def _select_offline(self, query: Query, note: _Note, choice: Choice, lanes: Sequence[str]) -> Mapping[str, float]:
        """The same of a query that is no load: it waits for what meets its needs rather than take what does not."""
        note.choice = choice
        meets = choice.variant is not None and _meets(self.variants[choice.variant], note.needs)
        if choice.load is not None and not meets:
            self.waiting.add(choice.load)
            return {}
        if choice.variant is None:
            query.refused = Refusal(reasons.NO_VARIANT, self._words(note.needs, choice))
        elif choice.variant in lanes:
            return self._chosen(query, note, choice)
        else:
            self.waiting.add(choice.variant)
        return {}

    def _chosen(self, query: Query, note: _Note, choice: Choice) -> Mapping[str, float]:
        assert choice.variant is not None  # the caller has looked
        note.of[choice.variant] = self.variants[choice.variant]
        note.why = self._why(query.asked_at, note.needs, choice)
        note.version = self._versions.get(choice.variant)
        return {choice.variant: 1.0}

    def heard(self, variant: str, answer: Any, *, late: bool) -> None:
        """Nothing: one answer is all that there is."""

    def combine(self, query: Query) -> Joint:
        """The answer, and what to say of it."""
        name, answer = next(iter(query.answers.items()))
        note: _Note = query.note
        variant = note.of[name]
        needs: Needs = note.needs
        met = _meets(variant, needs) and query.asked_at <= query.request.deadline + _LATE
        if not query.request.offline:
            self.stats.answered += 1
            self.stats.met += met
        flags = dict(answer.flags or {})
        flags |= {"variant": name, "architecture": variant.architecture, "accuracy": variant.accuracy}
        if note.version is not None:
            flags["version"] = note.version
        assert note.choice is not None  # it was asked
        flags |= {"found": str(note.choice.how), "asked": named(needs), "met": met}
        flags[WHY] = note.why
        return Joint(dict(answer.outputs), flags, declined=False, batch=answer.batch)

    def _choose(self, query: Query, needs: Needs) -> Choice:
        return self.selection.choose(needs, query.request.deadline - query.asked_at, query.asked)

    def _update(self, now: float) -> None:
        if now - self._looked >= _LOOK:
            self._count(now)
        ready, waits = self.ready(), self.waits(now)
        for name in self.variants:
            known = self._noted.get(name, _NOTHING)
            count = ready.get(name, 0)
            load = self._loads.get(name, 0.0) / count if count else 0.0
            status = known._replace(serves=count > 0, load=load, wait=waits.get(name, 0.0), usable=known.usable)
            self._known[name] = status
            self.selection.update(name, status)

    def _count(self, now: float) -> None:
        """Reckon each variant's load, of one worker's peak, since it was looked last."""
        since = now - self._looked
        self._loads = {}
        for name, variant in self.variants.items():
            came = self.stats.asked[name] - self._counted[name]
            self._loads[name] = came / since / variant.rate
        self._counted = Counter(self.stats.asked)
        self._looked = now

    def _why(self, now: float, needs: Needs, choice: Choice) -> dict[str, Any]:
        """What a choice goes by, as a flag tells it; made once for choices that are alike, as it takes some 50 us."""
        if now - self._whys_since >= _ALIKE:
            self._whys, self._whys_since = {}, now
        told = self._whys.get((needs, choice))
        if told is None:
            told = self._whys[needs, choice] = self._considered(needs, choice)
        return told

    def _considered(self, needs: Needs, choice: Choice) -> dict[str, Any]:
        assert choice.variant is not None  # somebody answers
        names = dict.fromkeys([choice.variant, *self.selection.considered(needs, _TOLD)])
        of = {}
        for name in list(names)[:_TOLD]:
            variant, status = self.variants[name], self._known[name]
            latency = variant.latency * max(1.0, status.slower)
            figures = (status.load, status.wait, latency, variant.accuracy)
            of[name] = [_state(status), *(float(f"{each:.3g}") for each in figures)]
        told: dict[str, Any] = {"of": of, "others": len(self.variants) - len(of)}
        return told if choice.load is None else told | {"load": choice.load}

    def _want(self, needs: Needs, choice: Choice, latency: float) -> None:
        """Note what a query wants: of its load, where no variant of that architecture answers it; and how soon.

        One that took what had time, where the architecture that is cheapest for it serves too, does not say how soon.
        """
        wanted, taken = choice.load, choice.variant if choice.how is not How.LOADING else None
        if wanted is not None and (taken is None or self._architecture(taken) != self._architecture(wanted)):
            self.stats.unmet[wanted] += 1
        else:
            wanted = taken
        if wanted is None:
            return
        model, cheapest = self._architecture(wanted), self._cheapest(needs)
        elsewhere = model != cheapest and any(
            each.architecture == cheapest and self._known[each.name].serves for each in self.variants.values()
        )
        if not elsewhere:
            self.latencies.setdefault(model, deque(maxlen=_KEPT)).append(latency)

    def _cheapest(self, needs: Needs) -> str | None:
        """The architecture that meets a query's needs at the least cost; None where none does."""
        if needs not in self._cheap:
            if len(self._cheap) >= _KEPT:
                self._cheap.clear()
            meets = [
                each
                for each in self.variants.values()
                if _meets(each, needs) and (needs.latency is None or each.latency <= needs.latency + _LATE)
            ]
            costs = {(each.units if each.cost is None else each.cost) / each.rate: each.architecture for each in meets}
            self._cheap[needs] = costs[min(costs)] if costs else None
        return self._cheap[needs]

    def _is_lacking(self, needs: Needs, choice: Choice) -> bool:
        """Whether nothing of the model of what is to be loaded will do, fast as it may be."""
        assert choice.load is not None  # the caller has looked
        if needs.variant is not None or choice.variant is None:
            return needs.variant is not None
        taken, wanted = self.variants[choice.variant], self.variants[choice.load]
        return taken.architecture == wanted.architecture and taken.accuracy < needs.accuracy

    def _architecture(self, variant: str) -> str:
        return self.variants[variant].architecture

    @staticmethod
    def _words(needs: Needs, choice: Choice) -> str:
        asked = ", ".join(f"{key} {value}" for key, value in named(needs).items())
        if not asked:
            return f"no variant of {needs.app!r} runs"
        hint = "" if choice.suggestion is None else f"; {choice.suggestion!r} comes closest"
        return f"no running variant of {needs.app!r} has {asked}{hint}"


_NOTHING: Final = Status()


def _state(status: Status) -> str:
    if status.serves:
        return "marked" if status.marked else "active"
    return "failed" if not status.usable else "loading" if status.loading is not None else "inactive"


def _meets(variant: Variant, needs: Needs) -> bool:
    return (
        variant.accuracy >= needs.accuracy
        and needs.model in (None, variant.architecture)
        and needs.variant in (None, variant.name)
    )
