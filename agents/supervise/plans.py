"""Which processes a pipeline needs on this machine, and how each is started.

A stateless stage has its replicas, and standbys that wait to take a dead one's place; a stateful stage has a process
for each member of each shard; and there is the gate.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from agents.core.joins import longest_wait
from agents.live.groups import group_id, member_label, member_of, standby_label
from agents.live.metrics_server import Address
from agents.supervise.child import GATE, MEMBER, STAGE, STANDBY, ChildPlan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agents.supervise.service_settings import ServiceSettings
    from topology.load import Pipeline
    from topology.spec import StageSpec


def join_holds(pipeline: Pipeline) -> dict[str, float]:
    """By stage that joins, and the gate where it does: how long a half-heard request may hold its input back."""
    spec, graph = pipeline.spec, pipeline.graph
    joining = [stage.name for stage in spec.stages if graph.is_join(stage.name)]
    if len(graph.sinks) > 1:
        joining.append(GATE)
    return dict.fromkeys(joining, longest_wait(spec.slo))


def child_plans(settings: ServiceSettings) -> list[ChildPlan]:
    period = ["--plan-period", str(settings.period)]
    plans = [plan for stage in settings.pipeline.spec.stages for plan in _stage_plans(settings, stage, period)]
    gate = _command(settings, ["--gate", *period])
    plans.append(ChildPlan(GATE, 0, GATE, gate, settings.environment))
    host, base = settings.metrics
    listen = ["--metrics-host", host] if settings.metrics != Address() else []
    ports = (["--metrics-port", str(base + 1 + place)] if base else [] for place in range(len(plans)))
    return [replace(plan, command=[*plan.command, *listen, *port]) for plan, port in zip(plans, ports, strict=True)]


def _stage_plans(settings: ServiceSettings, stage: StageSpec, period: Sequence[str]) -> Iterator[ChildPlan]:
    policy = [] if settings.policy is None else ["--policy", settings.policy]

    def command(replica: int, *more: str) -> list[str]:
        what = ["--stage", stage.name, "--replica", str(replica), *more]
        return _command(settings, [*what, *period, *settings.extra, *policy])

    if stage.replicated:
        for replica in range(stage.processes):
            label = member_label(stage, replica)
            yield ChildPlan(
                *(stage.name, replica, MEMBER, command(replica), settings.environment, label),
                shard=member_of(stage, replica)[0],
                member=group_id(settings.pipeline.spec.name, label),
            )
        return
    # A state that is not replicated lives in an ordinary replica, one for each shard.
    for replica in range(stage.shards if stage.stateful else stage.replicas):
        yield ChildPlan(stage.name, replica, STAGE, command(replica), settings.environment)
    for number in range(stage.standby):
        label = standby_label(stage.name, number)
        yield ChildPlan(stage.name, number, STANDBY, command(number, "--standby"), settings.environment, label)


def _command(settings: ServiceSettings, what: Sequence[str]) -> list[str]:
    """`spillway serve` for one process, by module, as the script may not be on PATH.

    -P: the working directory must not come before our own rooms; the command adds it after them, for users' models.
    """
    python = [sys.executable, "-P", "-m", "agents.cli.main", "serve", str(settings.pipeline.path)]
    where = ["--bootstrap", settings.cluster.bootstrap, "--run-dir", str(settings.run_dir)]
    if settings.client_config is not None:
        where += ["--client-config", str(settings.client_config)]
    return [*python, *what, *where, "--parent", str(os.getpid())]
