"""The option that names a policy, with or without parameters."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from spillway.agents.core.policies import POLICIES, selected
from spillway.agents.core.policies.selection import reference_in
from spillway.agents.learning.chosen import loss_of, selection_of
from spillway.agents.models.loading import load_policy
from spillway.agents.profiling.conditions import stale_profiles
from spillway.lineage.errors import SpillwayError
from spillway.topology.load import load
from spillway.topology.problems import InvalidPipelineError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from click.shell_completion import CompletionItem

    from spillway.topology.load import Pipeline
    from spillway.topology.problems import Finding
    from spillway.topology.problems import Path as FieldPath


def load_warned(path: Path) -> Pipeline:
    """Read a pipeline file, and warn of each stale profile on stderr. Raises SpecError with all problems."""
    pipeline = load(path)
    for stale in stale_profiles(pipeline):
        click.echo(f"warning: {stale}", err=True)
    return pipeline


class PolicySetting(click.ParamType):
    """A policy's name, or a name with parameters such as pard:quantile=.2,window=auto; checked, and kept as text.

    One of the user's own, module:Class, is left to `require_policies`: only the pipeline's place says where it may be.
    """

    name = "policy"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        wrong = wrong_policy(str(value), imports=False)
        if wrong is not None:
            self.fail(wrong, param, ctx)
        return str(value)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:  # noqa: ARG002 - click's signature
        return "NAME[:KEY=VALUE,...]"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - only a completing shell needs it

        return [CompletionItem(name) for name in POLICIES if name.startswith(incomplete)]


POLICY = PolicySetting()


def require_policies(pipeline: Pipeline, instead: str | None) -> None:
    """Check what the stages are to be run with, before anything is started: `instead`, or what the file says.

    Policies of the user's own are imported. Raises UsageError or ModelError, or SpecError with file, line and stage.
    """
    findings = list(ensemble_findings(pipeline))
    if instead is not None:
        selected(instead, load_policy)
    else:
        findings += policy_findings(pipeline, imports=True)
    if findings:
        raise InvalidPipelineError(str(pipeline.path), findings)


def ensemble_findings(pipeline: Pipeline, *, imports: bool = False) -> Iterator[Finding]:
    """What is wrong with selections and losses; with `imports` those of the user's are looked up, too."""
    for number, stage in enumerate(pipeline.spec.stages):
        if stage.ensemble is None:
            continue
        selection, loss = stage.ensemble.selection, stage.ensemble.loss
        for field, name, check in (
            ("selection", selection["name"], partial(selection_of, stage.name, selection)),
            ("loss", loss, partial(loss_of, stage.name, loss)),
        ):
            try:
                if imports or ":" not in name:
                    check()
            except SpillwayError as error:
                yield pipeline.finding(("stages", number, "ensemble", field), str(error))


def policy_findings(pipeline: Pipeline, *, imports: bool = False) -> Iterator[Finding]:
    """Yield what is wrong with the policies that a file names; with `imports` those of the user's are looked up."""
    whole = pipeline.spec.policy
    named: list[tuple[FieldPath, str | None]] = [(("policy",), whole)]
    for number, stage in enumerate(pipeline.spec.stages):
        if stage.policy != whole:  # else it is the pipeline's, or as wrong as that
            named.append((("stages", number, "policy"), stage.policy))
    for path, setting in named:
        if setting is not None and (wrong := wrong_policy(setting, imports=imports)):
            yield pipeline.finding(path, wrong)


def wrong_policy(setting: str, *, imports: bool) -> str | None:
    """What is wrong with the name of a policy, or its parameters; of one of the user's own only with `imports`."""
    if not imports and reference_in(setting, POLICIES):
        return None
    try:
        selected(setting, load_policy)
    except SpillwayError as error:
        return str(error)
    return None
