"""What a registration is given: a trained model, and queries whose answers are known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway.agents.models.loading import construct, find_function, is_torch_module
from spillway.lineage.errors import ModelError, UsageError
from spillway.lineage.values.npz import read_npz

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_LABEL = "label"
_ALONE = "x"  # what an input without a name is called


@dataclass(frozen=True, slots=True)
class Validation:
    """Queries, by input stacked along the first axis, and what each is: a whole number or a text."""

    inputs: Mapping[str, NDArray[Any]]
    labels: NDArray[Any]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def signature(self) -> dict[str, Any]:
        """What a query of them must be."""
        return {name: {"dtype": x.dtype.name, "shape": list(x.shape[1:])} for name, x in self.inputs.items()}

    def queries(self) -> list[dict[str, Any]]:
        return [{name: x[place] for name, x in self.inputs.items()} for place in range(len(self))]


def read_validation(source: str) -> Validation:
    """Read an .npz, or what a `module:function` returns: (inputs, labels), or a mapping that has a `label`.

    Inputs are one array, called `x`, or a mapping of names to arrays; floats become float32. Raises UsageError.
    """
    made = _npz(Path(source)) if source.endswith(".npz") else _called(source)
    if isinstance(made, tuple) and len(made) == 2:  # noqa: PLR2004 - a pair
        inputs, labels = made
    elif isinstance(made, dict) and _LABEL in made:
        inputs, labels = {name: each for name, each in made.items() if name != _LABEL}, made[_LABEL]
    else:
        raise UsageError(
            f"validation set {source}: give (inputs, labels), or named arrays, one of them called {_LABEL!r}, not "
            f"{type(made).__name__}"
        )
    arrays = {name: np.asarray(x) for name, x in (inputs if isinstance(inputs, dict) else {_ALONE: inputs}).items()}
    arrays = {name: x.astype(np.float32) if x.dtype.kind == "f" else x for name, x in arrays.items()}
    answers = np.asarray(labels)
    sizes = {name: len(x) if x.ndim else 0 for name, x in {**arrays, _LABEL: answers}.items()}
    if not arrays or len(set(sizes.values())) != 1 or not len(answers) or answers.ndim != 1:
        raise UsageError(f"validation set {source}: there must be one label per query, and there are {sizes}")
    odd = [name for name, x in arrays.items() if x.dtype.kind not in "fiub"]
    if odd or answers.dtype.kind not in "iuU":
        what = f"input {odd[0]!r} is {arrays[odd[0]].dtype}" if odd else f"labels are {answers.dtype}"
        raise UsageError(f"validation set {source}: {what}; inputs are numbers, labels whole numbers or texts")
    return Validation(arrays, answers)


def _npz(file: Path) -> dict[str, Any]:
    try:
        return read_npz(file)
    except (OSError, ValueError) as error:
        raise UsageError(f"validation set {file} cannot be read: {error}") from error


def _called(source: str) -> Any:
    function = find_function(f"validation set {source!r}", source)
    try:
        return function()
    except Exception as error:
        raise UsageError(f"validation set {source!r} failed: {type(error).__name__}: {error}") from error


def read_model(name: str) -> Any:
    """What a `module:callable` makes: a trained torch module, or an estimator of scikit-learn. Raises ModelError."""
    place = f"model {name!r}"
    model = construct(place, name, {})
    if is_torch_module(model) or is_estimator(model):
        return model
    raise ModelError(
        f"{place} is a {type(model).__name__}; variants are generated from a torch.nn.Module or a fitted scikit-learn "
        "classifier"
    )


def is_estimator(model: Any) -> bool:
    """Whether it is a classifier of scikit-learn, which then has been imported."""
    return hasattr(model, "classes_") and callable(getattr(model, "predict", None)) and hasattr(model, "get_params")
