"""Stateful models: what such a model is, and the order in which a stage, a replay or a test runs it.

A stateful model is any class with three methods (HAMS, sections II-B and V: compute, then update):

- `initialize() -> state`: the state to start from, the same in every process: seed what is random.
- `compute(state, batch) -> outputs`: one mapping per query, as `predict`. It only reads: the state is copied meanwhile.
- `update(state, batch, outputs) -> state`: the batch's change of the state. It owns the state that it is given: it may
  change it in place and return it, or return another. `batch` and `outputs` hold the queries that change something.

And where they apply:

- `reads(query) -> bool`: whether a query changes nothing (an inference between training requests). Such a query must
  be answered from the state alone, whatever else its batch holds. A batch of nothing else makes no new version.
- `key(query) -> str`: a keyed model has a state per stream, user or the like. `initialize` makes that of a new key;
  `compute` and `update` take a mapping of their queries' keys to states, and `update` returns one of the same keys.
- `share() -> state`: a keyed model may keep one state a shard that all its keys share. `initialize(shared)` then makes
  a new key's state from it, with no memory in common, and the mappings have it under `SHARED`: `update` may change it.
- `max_keys`: of a keyed model, how many keys a shard keeps; none is ever removed. One beyond gets a state from
  `initialize` for each batch, and what `update` makes of it is dropped.
- `publish(state) -> value`: what others may look up of a key's state, where the stage has `publish: true`: anything
  that a message can hold. It only reads, and may be called beside `compute`.

And it may promise, by `fixed_state = True`, that the arrays which `initialize` makes stay in its states as they are in
name, dtype and shape. A state in the log that another model has made is then refused before anything is served. Of a
model that does not say, an update with its `example()` is tried; `fixed_state = False` says that they may change.

What `compute` has found for `update` (gradients, new hidden states) may wait on the model itself: the update of a batch
is the next call after its compute, or never comes. Nothing else may: a state that comes from the log, or an older one
to roll back to, is simply what the next `compute` is given, and the outputs have to be the same as if it had always
been there. `spillway.agents.models.warm_up` tries that; `spillway.agents.models.state` says what a state may hold.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from spillway.agents.models.state import State, check_key, check_state, copied, fingerprint
from spillway.lineage.errors import ModelError

if TYPE_CHECKING:
    from spillway.agents.models.inputs import Inputs


def check_method(place: str, method: str, function: Any, parameters: tuple[str, ...]) -> None:
    """Raise ModelError, which begins with `place`, for what cannot be called as `method(*parameters)`.

    `parameters` are written with `self`, as an author does; `function` is bound.
    """
    written = f"{method}({', '.join(parameters)})"
    if not callable(function):
        raise ModelError(f"{place} is {type(function).__name__}, not a method; write {written}")
    if is_async(function) or inspect.isgeneratorfunction(function):
        raise ModelError(f"{place} must be a plain method that returns its result, neither async nor a generator")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of a builtin; calling it will tell
        return
    try:
        signature.bind(*([None] * (len(parameters) - 1)))
    except TypeError as error:
        raise ModelError(f"{place}{signature} cannot be called as {written}: {error}") from error


def is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


Kind = Literal["shared", "keyed"]
Batch = Sequence["Inputs"]
Outputs = Sequence[Mapping[str, Any]]

SHARED = "*shared*"
"""Where the mappings of a keyed model have what its keys share; no key is called so."""

_SHAPES = {
    "initialize": ("self",),
    "compute": ("self", "state", "batch"),
    "update": ("self", "state", "batch", "outputs"),
    "reads": ("self", "query"),
    "key": ("self", "query"),
    "publish": ("self", "state"),
    "share": ("self",),
}
_NEEDED = ("initialize", "compute", "update")


class StatefulModel(Protocol):
    """What a stateful stage runs; a model with a `key` method takes and returns a mapping of keys to states."""

    def initialize(self) -> State:
        """Make the state to start from: the stage's, or a new key's."""
        ...

    def compute(self, state: Any, batch: Batch) -> Outputs:
        """Answer the batch from the state, without changing it."""
        ...

    def update(self, state: Any, batch: Batch, outputs: Outputs) -> Any:
        """Return the state after the batch, which was just computed."""
        ...


def is_stateful(model: object) -> bool:
    """Whether the model means to be a stateful one: it has a method of the contract that `predict` knows nothing of."""
    return any(callable(getattr(model, name, None)) for name in ("compute", "update"))


def check_model(place: str, model: object) -> Kind:
    """The kind of a stateful model. Raises ModelError that names the class, what is wrong with it and the fix."""
    name = type(model).__name__
    for method in _NEEDED:
        if not callable(getattr(model, method, None)):
            raise ModelError(
                f"{place}: {name} has no method {_written(method)}; a stateful model has {', '.join(_NEEDED)}"
                f"{_torch_hint(model)}"
            )
    for method, shape in _SHAPES.items():
        if (function := getattr(model, method, None)) is not None:
            shape = ("self", "shared") if method == "initialize" and hasattr(model, "share") else shape  # noqa: PLW2901
            check_method(f"{place}: {name}.{method}", method, function, shape)
    return "keyed" if hasattr(model, "key") else "shared"


def first_state(model: Any) -> State:
    """The state that a model starts from, or that its first key does."""
    state: State = model.initialize(model.share()) if hasattr(model, "share") else model.initialize()
    return state


def a_keys_state(state: Mapping[str, State]) -> State | None:
    """The state of some key, if there is any."""
    return next((each for key, each in state.items() if key != SHARED), None)


def _written(method: str) -> str:
    return f"{method}({', '.join(_SHAPES[method])})"


def _torch_hint(model: object) -> str:
    if not any(base.__module__.startswith("torch.nn") for base in type(model).__mro__):
        return ""
    return "; spillway.Learner and spillway.Streams turn a torch module into one"


class Machine:
    """A stateful model with its state, which computes and updates in turns; `version` counts the updates.

    Raises ModelError, which begins with `place`, where the model breaks its contract; what the model itself raises
    goes through. After an update that failed the state may be half changed: the machine refuses to go on. With `verify`
    it also raises where `compute` changes a state, or `update` that of a key outside its batch; that costs two
    fingerprints of the state a batch.
    """

    def __init__(
        self, place: str, model: StatefulModel, state: State | None = None, version: int = 0, *, verify: bool = False
    ) -> None:
        """Start from `state` (of a keyed model: keys to states), which the machine owns from now on, or anew."""
        self.kind = check_model(place, model)
        self.version = version
        self.state: Any  # a state; of a keyed model a dict of keys to states
        self._place = f"{place}: {type(model).__name__}"
        self._model = model
        self._reads = getattr(model, "reads", None)
        self._pending: tuple[list[Inputs], list[Mapping[str, Any]], Any] | None = None
        self._broken = ""
        self._verify = verify
        if state is not None:
            self.state = dict(state) if self.kind == "keyed" else state
        else:
            self.state = {} if self.kind == "keyed" else self._initial()
        self._shares = self.kind == "keyed" and hasattr(model, "share")
        self._most: int | None = getattr(model, "max_keys", None)
        if self._shares and SHARED not in self.state:
            self.state[SHARED] = model.share()  # type: ignore[attr-defined]
            check_state(f"{self._place}.share", self.state[SHARED])

    @property
    def pending(self) -> bool:
        """Whether the batch that was computed last still has to change the state."""
        return self._pending is not None

    def compute(self, batch: Batch) -> list[Mapping[str, Any]]:
        """Answer a batch from the state as it is. Raises ModelError if the update before is still due."""
        if self._broken or self._pending is not None:
            why = self._broken or "the previous batch has not been updated; call update or discard first"
            raise ModelError(f"{self._place}: cannot compute: {why}")
        given = self._states(batch) if self.kind == "keyed" else self.state
        before = self._prints(given)
        outputs = self._model.compute(given, list(batch))  # a list of its own: it may change that
        if self._prints(given) != before:
            raise ModelError(
                f"{self._place}.compute changes the state, which it may only read: change a copy, or "
                "change the state in update"
            )
        self._check_outputs(outputs, len(batch))
        changing = [index for index, query in enumerate(batch) if self._reads is None or not self._reads(query)]
        if changing:
            queries = [batch[index] for index in changing]
            if self.kind == "keyed":
                given = {key: given[key] for key in (*self._keys(queries), *self._own)}
            self._pending = queries, [outputs[index] for index in changing], given
        return list(outputs)

    def update(self) -> tuple[str, ...]:
        """Let the batch that was computed change the state; returns the keys that it touched (none of a shared one)."""
        if self._pending is None:
            return ()
        (queries, outputs, given), self._pending = self._pending, None
        self._broken = "its state may be half changed, as an update failed; restart from an intact version"
        others = {key: each for key, each in self.state.items() if key not in given} if self.kind == "keyed" else {}
        before = self._prints(others)
        state = self._model.update(given, queries, outputs)
        if self._prints(others) != before:
            raise ModelError(f"{self._place}.update changes the state of a key that is not in its batch")
        touched: tuple[str, ...] = ()
        if self.kind == "keyed":
            touched = self._take_keys(state, given)
        else:
            check_state(f"{self._place}.update", state)
            self.state = state
        self._broken = ""
        self.version += 1
        return touched

    def play(self, batches: Iterable[Batch]) -> list[list[Mapping[str, Any]]]:
        """Compute and update batch by batch; gives the outputs of each."""
        outputs = []
        for batch in batches:
            outputs.append(self.compute(batch))
            self.update()
        return outputs

    def discard(self) -> None:
        """Forget the batch that was computed: it never was."""
        self._pending = None

    def published(self, keys: Iterable[str]) -> Iterator[tuple[str, Any]]:
        """What the model publishes of those of the keys that there are. While no update runs, on any thread.

        Of what keys share it is what a new key would publish.
        """
        publish = self._model.publish  # type: ignore[attr-defined]
        for key in keys:
            if key in self.state:
                yield key, publish(self._initial() if key == SHARED else self.state[key])

    def rehearse(self, batch: Batch) -> BaseException | None:
        """Compute and update a batch on copies of the states that it touches; gives what the update raised.

        What `compute` raises goes through. The state stays as it is; there has to be room for the copies.
        """
        if self.kind == "keyed":
            keys = (*self._keys(batch), *self._own)
            own: Any = {key: copied(self.state[key]) for key in keys if key in self.state}
        else:
            own = copied(self.state)
        aside = Machine(f"{self._place} on a copy", self._model, own)
        aside.compute(batch)
        try:
            aside.update()
        except BaseException as error:  # noqa: BLE001 - user code
            return error
        return None

    @property
    def _own(self) -> tuple[str, ...]:
        """The keys of a keyed state that are no query's."""
        return (SHARED,) if self._shares else ()

    def _initial(self) -> State:
        model: Any = self._model
        shares = self.kind == "keyed" and self._shares
        state: State = model.initialize(self.state[SHARED]) if shares else model.initialize()
        check_state(f"{self._place}.initialize", state)
        return state

    def _keys(self, batch: Batch) -> Iterable[str]:
        return dict.fromkeys([self._key(query) for query in batch])  # not by map, which a StopIteration would end

    def _key(self, query: Inputs) -> str:
        key = self._model.key(query)  # type: ignore[attr-defined]
        if not isinstance(key, str):
            raise ModelError(f"{self._place}.key must return a string, not {type(key).__name__}; write str(...)")
        check_key(f"{self._place}.key", key)
        if key == SHARED:
            raise ModelError(
                f"{self._place}.key: {SHARED!r} is reserved for the state that all keys share; use another key"
            )
        return key

    def _states(self, batch: Batch) -> dict[str, State]:
        """The states of the batch's keys; a new key's is made, and is kept only if it is updated."""
        keys = (*self._keys(batch), *self._own)
        return {key: self.state[key] if key in self.state else self._initial() for key in keys}

    def _take_keys(self, states: object, given: Mapping[str, State]) -> tuple[str, ...]:
        """Take the states of keys that were known, and of new ones while there is room; gives their keys."""
        if not isinstance(states, Mapping) or set(states) != set(given):
            told = sorted(map(str, states)) if isinstance(states, Mapping) else type(states).__name__
            raise ModelError(
                f"{self._place}.update must return a mapping of the given keys ({_few(given)}) to states, "
                f"not {_few(told) if isinstance(told, list) else told}"
            )
        for key, state in states.items():
            check_state(f"{self._place}.update, key {key!r}", state)
        most = None if self._most is None else self._most + len(self._own)
        touched = []
        for key in given:
            if key in self.state or most is None or len(self.state) < most:
                self.state[key] = states[key]
                touched.append(key)
        return tuple(touched)

    def _prints(self, given: Any) -> dict[str, str]:
        return fingerprints(self.kind, given) if self._verify and given else {}

    def _check_outputs(self, outputs: object, count: int) -> None:
        if not isinstance(outputs, Sequence) or isinstance(outputs, str) or len(outputs) != count:
            told = f"{len(outputs)} results" if isinstance(outputs, Sequence) else type(outputs).__name__
            raise ModelError(f"{self._place}.compute must return a list of {count} mappings, one per query, not {told}")
        for output in outputs:
            if not isinstance(output, Mapping):
                raise ModelError(f"{self._place}.compute must return mappings, not {type(output).__name__}")


def _few(names: Iterable[str], most: int = 5) -> str:
    listed = sorted(names)
    return ", ".join(map(repr, listed[:most])) + (f" and {len(listed) - most} more" if len(listed) > most else "")


def fingerprints(kind: Kind, state: State) -> dict[str, str]:
    """The fingerprint of each key's state; of a shared state its own, under the empty key."""
    return {key: fingerprint(each) for key, each in state.items()} if kind == "keyed" else {"": fingerprint(state)}
