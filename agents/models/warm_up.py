"""Trying a stateful model on some batches before it serves: does it keep its contract?

The contract is in `spillway.agents.models.stateful`.

What is tried, each with an error of its own: two models built alike begin alike; `compute` only reads and `update`
touches only its batch's keys; the state that stands in the middle can be given to a model built anew (a backup that
takes over), and to the one that is past it (a primary that rolls back), and both go on to the same outputs and state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spillway.agents.models.state import State, copied, fingerprint, size
from spillway.agents.models.stateful import (
    Batch,
    Kind,
    Machine,
    StatefulModel,
    check_model,
    fingerprints,
    first_state,
)
from spillway.lineage.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class WarmUp:
    """What was found of a model that keeps the contract."""

    kind: Kind
    versions: int  # batches that changed the state
    keys: int  # of a keyed model
    size: int  # bytes of arrays and tensors, all keys together
    repeats: bool  # whether the same batches gave the same bits again; what is random need not


def rehearse(
    place: str, make: Callable[[], StatefulModel], batches: Sequence[Batch], *, random: bool = False
) -> WarmUp:
    """Raise ModelError for the first rule that the model breaks. A `random` model may go on otherwise the second time.

    A model of which two runs differ, and that is not said to be random, keeps something outside of its state, or draws
    numbers without a seed.
    """
    first = make()
    kind = check_model(place, first)
    name = f"{place}: {type(first).__name__}"
    if fingerprint(first_state(first)) != fingerprint(first_state(make())):
        raise ModelError(f"{name}.initialize returns a different state in every process; seed its random numbers")
    half = len(batches) // 2
    machine = Machine(place, first, verify=True)
    machine.play(batches[:half])
    middle, version = copy_states(kind, machine.state), machine.version
    ending = _prints(machine.play(batches[half:]))
    final = fingerprints(kind, machine.state)
    repeats = True
    for model, who in ((make(), "a model built anew"), (first, "the same model, rolled back")):
        again = Machine(place, model, copy_states(kind, middle), version)
        if _prints(again.play(batches[half:])) != ending or fingerprints(kind, again.state) != final:
            if not random:
                raise ModelError(
                    f"{name}: {who} does not continue from a state as the first run did; keep everything that changes "
                    "in the state, including the seed of random numbers"
                )
            repeats = False
    keys = len(final) if kind == "keyed" else 0
    return WarmUp(kind, machine.version, keys, _size(kind, machine.state), repeats)


def copy_states(kind: Kind, state: State) -> dict[str, Any]:
    """A copy, without shared memory, of a state, or of a mapping of keys to states."""
    return {key: copied(each) for key, each in state.items()} if kind == "keyed" else copied(state)


def _prints(outputs: Sequence[Sequence[Mapping[str, Any]]]) -> list[list[str]]:
    return [[fingerprint(each) for each in batch] for batch in outputs]


def _size(kind: Kind, state: State) -> int:
    return sum(map(size, state.values())) if kind == "keyed" else size(state)
