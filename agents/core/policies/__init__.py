"""The policies, by the name under which a pipeline or a command selects them.

A setting is a name, or a name with parameters: `pard`, `pard:quantile=.2,window=auto`. A policy of the user's own is
named `module:Class`, with parameters `module:Class:longest=.2`; `load` imports what such a reference names, since
nothing is imported here (`spillway.agents.models.loading.load_policy`; None where only ours are meant).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.agents.core.policies.fifo import Expired, Naive
from spillway.agents.core.policies.pard import Pard
from spillway.agents.core.policies.selection import select
from spillway.agents.core.policies.spillway import Spillway

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spillway.agents.core.policies.selection import Selection
    from spillway.agents.core.policy import Policy, StageView
    from spillway.topology.spec import PipelineSpec

POLICIES: dict[str, type[Policy]] = {"naive": Naive, "expired": Expired, "pard": Pard, "spillway": Spillway}
DEFAULT = "pard"


def selected(setting: str, load: Callable[[str], object] | None = None) -> Selection:
    """Check a setting. Raises UsageError where there is no such policy or parameter, or a value cannot be."""
    return select(setting, POLICIES, load)


def make(setting: str | Selection, view: StageView) -> Policy:
    """Make the policy for one queue; a text names one of ours. Raises UsageError as `selected` does."""
    selection = selected(setting) if isinstance(setting, str) else setting
    policy = selection.build(view)
    policy.setting = str(selection)
    return policy


def effective(spec: PipelineSpec, instead: str | None = None) -> dict[str, str]:
    """The setting of each stage: `instead`, which a command was given, or the file's, or the default."""
    return {stage.name: instead or stage.policy or DEFAULT for stage in spec.stages}


def words_for(spec: PipelineSpec, instead: str | None = None) -> str:
    settings = effective(spec, instead)
    if len(set(settings.values())) > 1:
        return "policies: " + ", ".join(f"{stage} {setting}" for stage, setting in settings.items())
    setting = next(iter(settings.values()))
    default = "" if instead or any(stage.policy for stage in spec.stages) else " (the default)"
    drops = "" if setting == "naive" else "; queries predicted to miss the SLO are dropped ('policy: naive' drops none)"
    return f"policy: {setting}{default}{drops}"


def period_of(settings: Iterable[str | None], load: Callable[[str], object] | None = None) -> float:
    """Seconds between two synchronisations of a pipeline whose stages have these settings (None: the default policy).

    The least that a policy among them asks for: all stages speak at the same moments. Raises UsageError as `selected`.
    """
    return min(selected(setting or DEFAULT, load).kind.period for setting in dict.fromkeys(settings))
