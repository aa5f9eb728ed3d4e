"""What `model: velox:module:Class` constructs: both what a stage and what a learner runs of one class of a user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agents.learning.velox.learning import Learning
from agents.learning.velox.model import Features, VeloxModel
from agents.learning.velox.ranking import Ranking, topk_of
from lineage.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable


class Served(Learning, Ranking):
    """Stage and learner have the same arguments but `topk`, which is the stage's."""

    def __init__(self, make: Callable[..., Any], arguments: dict[str, Any]) -> None:
        """Raises what the class does; ModelError for one that is no VeloxModel, UsageError for a wrong `topk`."""
        topk = topk_of(arguments.get("topk", {}))
        model = make(**{name: value for name, value in arguments.items() if name != "topk"})
        if not isinstance(model, VeloxModel):
            raise ModelError(f"{type(model).__name__} is no VeloxModel; derive it from spillway.VeloxModel")
        features = Features(model)
        Learning.__init__(self, model, features)
        Ranking.__init__(self, model, features, topk)
