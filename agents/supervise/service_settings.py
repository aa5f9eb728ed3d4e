"""What a pipeline is served with on this machine: from the command line to its processes' options."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agents.core.policies import period_of
from agents.live.registry import Address
from agents.supervise.lifecycle import RestartPolicy
from agents.supervise.supervisor import SupervisorSettings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from producers.connection import ClientSettings
    from topology.load import Pipeline


def _for_a_while() -> SupervisorSettings:
    """For who serves only as long as something else lasts, and wants to know what goes wrong meanwhile."""
    return SupervisorSettings(RestartPolicy(give_up=5))


@dataclass(frozen=True)
class ServiceSettings:
    """What to serve and how. `environment` is the children's; `client_config` is the file that `cluster` came from."""

    pipeline: Pipeline
    cluster: ClientSettings
    run_dir: Path
    client_config: Path | None = None
    policy: str | None = None
    plan_period: float | None = None  # seconds; None: as the policies say
    environment: Mapping[str, str] | None = None
    ready_file: Path | None = None
    take_over: bool = False  # from whoever serves the pipeline now
    extra: tuple[str, ...] = ()  # further options of `spillway serve` for every stage process
    metrics: Address = Address()  # noqa: RUF009 - immutable. Of the supervisor; its processes have the ports after it
    supervision: SupervisorSettings = field(default_factory=_for_a_while)

    @property
    def period(self) -> float:
        """Seconds between two words of a replica to the others; the same for all stages, whatever their policies."""
        if self.plan_period is not None:
            return self.plan_period
        return period_of(self.policy or stage.policy for stage in self.pipeline.spec.stages)
