"""Base of what can be set of a policy."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Parameters(BaseModel):
    """The parameters of a policy, checked once when it is selected."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
