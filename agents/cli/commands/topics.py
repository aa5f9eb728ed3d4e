"""`spillway topics`: a pipeline's topics on its cluster."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from agents.cli.cluster import find_cluster
from agents.cli.options import (
    SuggestingGroup,
    cluster_options,
    confirmed,
    json_option,
    pipeline_argument,
    run_dir_option,
)
from agents.live import topics as live_topics
from agents.live.groups import group_ids
from agents.supervise.registry import ServeEntry
from lineage.errors import UsageError
from topology.load import load
from topology.topics import topic_plan

if TYPE_CHECKING:
    from pathlib import Path


@click.group(cls=SuggestingGroup)
def topics() -> None:
    """Look at a pipeline's topics, or delete them.

    \b
    Example: spillway topics delete pipeline.yaml
    """  # noqa: D301 - click's own marks


@topics.command("list")
@pipeline_argument
@cluster_options
@run_dir_option
@json_option
def list_topics(
    pipeline: Path, bootstrap: str | None, client_config: Path | None, run_dir: Path, *, as_json: bool
) -> None:
    """List the topics that a pipeline needs, and whether the cluster has them."""
    spec = load(pipeline).spec
    settings = find_cluster(bootstrap, client_config, run_dir=run_dir, pipeline=spec.name)
    plan = topic_plan(spec)
    there = live_topics.present(settings, [topic.name for topic in plan])
    if as_json:
        click.echo(json.dumps({topic.name: topic.name in there for topic in plan}))
        return
    width = max(len(topic.name) for topic in plan)
    for topic in plan:
        click.echo(f"{topic.name.ljust(width)}  {'there  ' if topic.name in there else 'missing'}  {topic.purpose}")


@topics.command()
@pipeline_argument
@cluster_options
@run_dir_option
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete(pipeline: Path, bootstrap: str | None, client_config: Path | None, run_dir: Path, *, yes: bool) -> None:
    """Delete a pipeline's topics and consumer groups: queries, outcomes, states and dead letters are gone then.

    Refused while the pipeline is served from here, or while a consumer group of its has members.

    \b
    Example: spillway topics delete pipeline.yaml
    """  # noqa: D301 - click's own marks
    spec = load(pipeline).spec
    served = ServeEntry.read(run_dir, spec.name)
    if served is not None and served.alive():
        raise UsageError(f"{spec.name} is served by process {served.pid}: stop it first")
    settings = find_cluster(bootstrap, client_config, run_dir=run_dir, pipeline=spec.name)
    there = live_topics.present(settings, [topic.name for topic in topic_plan(spec)])
    if not there:
        click.echo(f"{settings.bootstrap} has no topic of {spec.name}")
        return
    confirmed(f"delete {len(there)} topics of {spec.name} on {settings.bootstrap}, with all that is in them", yes=yes)
    live_topics.delete(settings, there, group_ids(spec))
    click.echo(f"{len(there)} topics of {spec.name} are deleted")
