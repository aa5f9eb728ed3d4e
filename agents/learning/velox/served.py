"""What `model: velox:module:Class` constructs: both what a stage and what a learner runs of one class of a user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from spillway.agents.learning.velox.learning import Learning
from spillway.agents.learning.velox.model import VeloxModel
from spillway.agents.learning.velox.ranking import Ranking, TopK
from spillway.agents.learning.velox.staleness import settings_of, stale_of
from spillway.agents.learning.velox.thetas import Thetas
from spillway.lineage.errors import ModelError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_OURS: Final = ("topk", "stale", "folder")  # of the arguments


class Served(Learning, Ranking):
    """Stage and learner have the same arguments but `topk`, which is the stage's, and `stale`, which is the learner's.

    `model`, `thetas` and `stale` are what they are made of.
    """

    def __init__(self, make: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
        """Raises what the class does; ModelError for one that is no VeloxModel, UsageError for wrong settings."""
        topk = settings_of(TopK, "topk", "{policy: linucb}", arguments.get("topk", {}))
        self.stale = stale_of(arguments.get("stale", {}))
        folder = arguments.get("folder")
        if folder is not None and not isinstance(folder, str):
            raise UsageError(f"folder must be the folder for files of retrained features, not {folder!r:.80}")
        if "stale" in arguments and folder is None:
            raise UsageError("retraining needs a 'folder' that all hosts can read, besides 'stale'")
        self.model = make(**{name: value for name, value in arguments.items() if name not in _OURS})
        if not isinstance(self.model, VeloxModel):
            raise ModelError(f"{type(self.model).__name__} is not a VeloxModel; derive it from spillway.VeloxModel")
        self.thetas = Thetas(self.model, folder=folder)
        Learning.__init__(self, self.model, self.thetas, self.stale)
        Ranking.__init__(self, self.model, self.thetas, topk)
