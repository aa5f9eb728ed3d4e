"""The model that `bench hop` gives our stage: it returns what it gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agents.models.inputs import Inputs


class Noop:
    """Does nothing."""

    def predict(self, batch: list[Inputs]) -> list[Inputs]:
        return batch
