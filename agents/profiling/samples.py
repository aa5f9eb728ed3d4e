"""Sample queries that a stage has of itself: the model's `example()`, or what its inputs declare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lineage.errors import ModelError
from producers.load.payloads import example_of
from topology.spec import InputSpec

if TYPE_CHECKING:
    from topology.spec import StageSpec

    Sample = dict[str, Any]

SAMPLES: Final = 64  # different queries; larger batches repeat them


def own_samples(spec: StageSpec, model: Any, seed: int) -> list[Sample] | None:
    """What the model's `example()` gives, else samples after the declared inputs; None where there is neither."""
    example = getattr(model, "example", None)
    if callable(example):
        return _example(spec, example)
    inputs = spec.inputs or getattr(model, "input_signature", None)
    if not inputs:
        return None
    declared = {name: InputSpec.model_validate(one) if isinstance(one, dict) else one for name, one in inputs.items()}
    rng = np.random.default_rng(seed)
    return [{name: example_of(one, rng) for name, one in declared.items()} for _ in range(SAMPLES)]


def _example(spec: StageSpec, example: Any) -> list[Sample]:
    place = f"stage {spec.name!r}: example() of {spec.model!r}"
    try:
        made = example()
    except Exception as error:
        raise ModelError(f"{place} failed: {type(error).__name__}: {error}") from error
    found = [made] if isinstance(made, Mapping) else list(made) if isinstance(made, (list, tuple)) else []
    if not found or not all(isinstance(one, Mapping) for one in found):
        raise ModelError(f"{place} must return a mapping of inputs, or a list of them, not {made!r:.60}")
    return [dict(one) for one in found]
