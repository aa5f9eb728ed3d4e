"""What has to fit together in a stage's `copies:` section, or between it and the stage's other fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.topology.problems import Problem

if TYPE_CHECKING:
    from spillway.topology.reading.fields import StageFields


def check_copies(stage: StageFields, problems: list[Problem]) -> None:
    """Add what does not fit together in what this stage says of its copies."""
    copies = stage.spec.copies
    if copies is None or not stage.usable("copies"):
        return
    if stage.spec.state is not None and stage.usable("state"):
        text = "a model with a state must process each query exactly once, on one worker; drop 'copies'"
        problems.append(Problem(stage.path("copies"), text, on_key=True))
    elif stage.spec.emulated is not None and stage.usable("emulated"):
        text = "an emulated model is a timer, which copies cannot make faster; drop 'copies'"
        problems.append(Problem(stage.path("copies"), text, on_key=True))
