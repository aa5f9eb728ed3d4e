"""The learner's part of a Velox model: a keyed state of each user's weights, changed by each observation.

A user's state has, over the features of each generation that the shard holds (one, or two around a switch), the weights
`w`, the `inverse` and the `prior` that they began from, and the tallies of its errors (`staleness`). It keeps the
user's last observations. All users of a generation have the prior that was estimated with its features (`prior`); where
there is none, as of a class's own features, it is lambda I around the mean of all the shard's users' weights when they
came (section 2.5, "Bootstrapping").

**Generations.** Which two are held from now on says the log of generations, as `control` of a query; an older one than
is known changes nothing. A shard looks at it when a query `{"follow": true}` asks, which anybody may send, as it says
nothing itself. It is taken in the log's order, and HAMS replicates what comes of it like any observation. It is sent to
one key of each shard, and to every user: a batch changes its own keys alone. Whenever a user's state is touched it is
brought in step with the shard: what is not held is dropped, and what is missing is computed from the user's
observations. So an observation counts once in every generation that is held, whichever is served, and a rollback loses
none. Who is new begins with all that are held.

`{"report": true}` reads what the shard knows of its generations, and changes nothing. What has a truth is an
observation, whatever the truth is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard

import numpy as np

from spillway.agents.learning.velox import observed as kept
from spillway.agents.learning.velox.rises import added, empty
from spillway.agents.learning.velox.staleness import NONE, Stale, tallied
from spillway.agents.learning.velox.weights import ERRORS, fitted, learn
from spillway.agents.models.stateful import SHARED
from spillway.lineage.errors import ModelError

if TYPE_CHECKING:
    from spillway.agents.learning.velox.model import Features, Item, VeloxModel
    from spillway.agents.learning.velox.thetas import Thetas
    from spillway.agents.learning.velox.weights import Matrix, Vector
    from spillway.agents.models.inputs import Inputs

State = Mapping[str, Any]
HELD: Final = "generations"
FOLLOW: Final = "follow"
REPORT: Final = "report"
FIRST: Final = "0"
_HIGHEST: Final = 1e100  # of a value, so that squares and their sums stay finite
_HIGHEST_LOSS: Final = 1e250  # of one observation, so that their sums do


class Observation(NamedTuple):
    """What a user said of an item, and whether that item was shown at random."""

    item: Item
    value: float
    drawn: bool


def observation(query: Mapping[str, Any]) -> Observation:
    """The observation in a feedback: its truth is `{"item": .., "value": ..}`, or the value of the item predicted.

    Raises ModelError for what is none.
    """
    truth, outputs = query.get("truth"), query.get("outputs") or {}
    told = truth if isinstance(truth, Mapping) else {"item": outputs.get("item"), "value": truth}
    item, value = told.get("item"), told.get("value")
    if not isinstance(item, str | int | float) or not _is_number(value):
        raise ModelError(
            f'the true answer of an observation must be {{"item": .., "value": a number of at most {_HIGHEST:g}}}, not '
            f"{truth!r:.80}"
        )
    shown: Sequence[Any] = outputs.get("items") or ()
    flags = (query.get("flags") or {}).values()
    slots = [slot for said in flags if isinstance(said, Mapping) for slot, _ in said.get("random", ())]
    return Observation(item, float(value), any(slot < len(shown) and shown[slot] == item for slot in slots))


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _HIGHEST


def asks(query: Mapping[str, Any], what: str) -> bool:
    """Whether a query asks for this, FOLLOW or REPORT, and is no observation."""
    return query.get(what) is True and "truth" not in query


class Learning:
    """A keyed model, as `spillway.agents.models.stateful` has it."""

    fixed_state = False  # generations come and go

    def __init__(self, model: VeloxModel, thetas: Thetas, stale: Stale = Stale()) -> None:  # noqa: B008 - immutable
        self._model, self._thetas, self._stale = model, thetas, stale
        self._weight = ERRORS[model.error]

    def share(self) -> State:
        return {"newest": 0, HELD: {FIRST: self._begun(self._thetas.own.theta)}}

    def initialize(self, shared: State) -> State:
        """Begin in every generation with its prior; where none was estimated, with the mean of its users' weights."""
        made = {}
        for number, each in shared[HELD].items():
            guessed = self._model.prior is None and each["theta"] == self._thetas.own.theta
            mean = each["sum"] / each["users"] if guessed and each["users"] else each["prior"].copy()
            inverse = self._thetas.prior(each["theta"]).inverse.copy()
            made[number] = self._of_user(each["theta"], mean, mean.copy(), inverse)
        return {HELD: made, **kept.none()}

    def key(self, query: Inputs) -> str:
        return query.key

    def reads(self, query: Inputs) -> bool:
        return asks(query, REPORT)

    def compute(self, states: Mapping[str, State], batch: Sequence[Inputs]) -> list[dict[str, Any]]:
        """Say what the weights before the batch predict. Raises ModelError for what cannot be learned."""
        return [self._computed(states, query) for query in batch]

    def _computed(self, states: Mapping[str, State], query: Inputs) -> dict[str, Any]:
        held = states[SHARED][HELD]
        if self.reads(query):
            return {number: _reported(each) for number, each in held.items()}
        if asks(query, FOLLOW):
            wanted = self._wanted(held, query)
            for each in wanted.values():
                self._thetas.get(each)  # whether there is a file, before the state changes
            return {HELD: wanted}
        seen = observation(query)
        features = {each["theta"]: self._thetas.get(each["theta"]).of(seen.item) for each in held.values()}
        own = {each["theta"]: each["w"] for each in states[query.key][HELD].values() if each["theta"] in features}
        if not own:  # nobody has touched the user since all that it had was dropped
            return {"predicted": None, "loss": None}
        served = [said.get("theta") for said in (query.get("flags") or {}).values() if isinstance(said, Mapping)]
        theta = next((each for each in served if isinstance(each, str) and each in own), next(reversed(own)))
        predicted = float(own[theta] @ features[theta])
        return {"predicted": predicted, "loss": self._loss(seen, predicted, query.key)}

    def _loss(self, seen: Observation, predicted: float, user: str) -> float:
        """Return what the author's loss says of an observation. Raises ModelError for what is no finite number."""
        loss = float(self._model.loss(seen.value, predicted, seen.item, user))
        if not abs(loss) <= _HIGHEST_LOSS:
            raise ModelError(
                f"{type(self._model).__name__}.loss of {seen.item!r:.80} returned {loss}: return a number of at most "
                f"{_HIGHEST_LOSS:g}"
            )
        return loss

    def update(self, states: dict[str, Any], batch: Sequence[Inputs], _outputs: Sequence[Any]) -> Mapping[str, State]:
        shared = states[SHARED]
        shared = {**shared, HELD: {number: dict(each) for number, each in shared[HELD].items()}}
        for query in batch:
            follows = asks(query, FOLLOW)
            if follows:
                self._hold(shared, self._wanted(shared[HELD], query))
            state = self._in_step(states[query.key], shared)
            if not follows:
                state = self._learned(state, shared, observation(query), query.key)
            states[query.key] = state
        return {**states, SHARED: shared}

    def publish(self, state: State) -> dict[str, Any]:
        """What the stage ranks by, for each generation: the inverse in single precision, as it only orders."""
        told: dict[str, Any] = {"n": state["n"], HELD: {}}
        for number, each in state[HELD].items():
            row = told[HELD][number] = {"w": each["w"], "theta": each["theta"]}
            for name, (count, total, _, _) in zip(("error", "pool"), each["errors"].tolist(), strict=True):
                row[name] = total / count if count else None
            if self._model.publish_inverse and told["n"]:  # else it is the prior's, and the shared row is written often
                row["inverse"] = each["inverse"].astype(np.float32)
        return told

    # Generations ------------------------------------------------------------------------------------------------

    def _wanted(self, held: Mapping[str, Any], query: Inputs) -> dict[str, str]:
        """The generations that the log says to hold, with their thetas; none while it is not read."""
        own = self._thetas.own.theta
        return {
            number: held[number]["theta"] if number in held else theta or own
            for number, theta in (query.control or {}).items()
        }

    def _hold(self, shared: dict[str, Any], wanted: Mapping[str, str]) -> None:
        newest = max(map(int, wanted), default=0)
        if newest > shared["newest"]:
            held = shared[HELD]
            shared["newest"] = newest
            shared[HELD] = {number: held.get(number) or self._begun(theta) for number, theta in wanted.items()}

    def _in_step(self, state: State, shared: dict[str, Any]) -> dict[str, Any]:
        """The state of a user with the generations that are held, and no other."""
        if state[HELD].keys() == shared[HELD].keys():
            return dict(state)
        made = {number: state[HELD].get(number) or self._anew(state, each) for number, each in shared[HELD].items()}
        return {**state, HELD: made}

    def _anew(self, state: State, of_shard: dict[str, Any]) -> dict[str, Any]:
        """A user's weights over a generation's features, from the observations that are kept."""
        features, prior = self._thetas.get(of_shard["theta"]), of_shard["prior"]
        rows, values = rows_of(features, state)
        fit = fitted(rows, values, self._thetas.prior(of_shard["theta"]).precision, prior, self._model.error)
        if state["n"]:
            of_shard["sum"] = of_shard["sum"] + fit[0]
            of_shard["users"] += 1
        return self._of_user(of_shard["theta"], prior, *fit)

    def _learned(self, state: dict[str, Any], shared: dict[str, Any], seen: Observation, user: str) -> dict[str, Any]:
        new, held = state["n"] == 0, {}
        for number, each in state[HELD].items():
            features, of_shard = self._thetas.get(each["theta"]).of(seen.item), shared[HELD][number]
            predicted = float(each["w"] @ features)
            loss = self._loss(seen, predicted, user)
            before = 0.0 if new else each["w"].copy()
            residual = seen.value - predicted
            learn(each["w"], each["inverse"], features, residual, self._weight(residual))
            of_shard["sum"] = of_shard["sum"] + (each["w"] - before)
            of_shard["users"] += new
            of_shard["errors"] = _tallied(of_shard["errors"], loss, self._stale.window, drawn=seen.drawn)
            of_shard["since"] = [
                added(series, loss, tally[3], self._stale.window)
                if counts and tally[0] > self._stale.window
                else series
                for series, tally, counts in zip(of_shard["since"], of_shard["errors"], (True, seen.drawn), strict=True)
            ]
            errors = _tallied(each["errors"], loss, self._stale.users_window, drawn=seen.drawn)
            stale = bool(self._stale.over(errors[0], self._stale.users_window))
            of_shard["stale"] += stale - each["stale"]
            held[number] = {**each, "errors": errors, "stale": stale}
        return {HELD: held, **kept.added(state, seen.item, seen.value, self._model.observations)}

    def _begun(self, theta: str) -> dict[str, Any]:
        """What a shard knows of a generation that nobody has yet."""
        prior = self._thetas.prior(theta).mean
        errors = np.array([NONE, NONE])  # of all observations, and of those in the pool
        begun = {"theta": theta, "prior": prior.copy(), "sum": prior * 0, "users": 0, "stale": 0, "errors": errors}
        return begun | {"since": [empty(), empty()]}

    def _of_user(self, theta: str, prior: Vector, weights: Vector, inverse: Matrix) -> dict[str, Any]:
        told = {"theta": theta, "errors": np.array([NONE, NONE]), "stale": False}
        return {"w": weights, "inverse": inverse, "prior": prior.copy(), **told}


def rows_of(features: Features, state: State) -> tuple[Matrix, Vector]:
    """The features of a user's kept observations, and what was observed; without those that have no features."""
    found = features.known(kept.items_of(state))
    known = np.array([row is not None for row in found], np.bool_)
    rows = [row for row in found if row is not None]
    return np.array(rows).reshape(len(rows), features.table.shape[1]), state["values"][known]


def _reported(of_shard: Mapping[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {name: of_shard[name] for name in ("theta", "users", "stale")}
    for name, tally, series in zip(("errors", "pool"), of_shard["errors"], of_shard["since"], strict=True):
        told[name] = tally.tolist()
        told[f"{name}_since"] = {part: rows.tolist() for part, rows in series.items()}
    return told


def _tallied(errors: Matrix, loss: float, window: int, *, drawn: bool) -> Matrix:
    pool = tallied(errors[1], loss, window) if drawn else errors[1]
    return np.array([tallied(errors[0], loss, window), pool])
