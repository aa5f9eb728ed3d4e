"""What has to fit together in a stage's `cache:` section, or between it and the stage's other fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.topology.problems import Problem

if TYPE_CHECKING:
    from spillway.topology.reading.fields import StageFields


def check_cache(stage: StageFields, problems: list[Problem]) -> None:
    """Add what does not fit together in what this stage says of its cache; that the model allows one, agents check."""
    if stage.spec.cache is not None and stage.spec.state is not None and stage.usable("cache", "state"):
        text = (
            "a model with a state may answer the same query differently later, so its answers cannot be cached; drop "
            "'cache'"
        )
        problems.append(Problem(stage.path("cache"), text, on_key=True))
