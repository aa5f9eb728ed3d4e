"""A stateful model whose processes write no state while a file is there: Fig. 6, where a state's delivery is delayed.

What the stage sends leaves as ever; only the thread that writes versions waits, before the chunks of the next one.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway.agents.models.loading import load_stateful_model
from spillway.agents.run import crash_points

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spillway.agents.models.stateful import StatefulModel


def held(model: str, file: str, arguments: Mapping[str, Any] | None = None) -> StatefulModel:
    """Make a model, in a process whose states are held while `file` exists, for pipeline files."""

    def wait(point: str) -> None:
        while point == "before-chunks" and Path(file).exists():
            time.sleep(0.005)

    crash_points.hook = wait
    return load_stateful_model("held", model, arguments or {})
