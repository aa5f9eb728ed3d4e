"""`spillway broker topics`: a pipeline's topics on its cluster."""

from __future__ import annotations

import json

import click

from spillway.agents.cli.cluster import Source, from_source
from spillway.agents.cli.columns import columns
from spillway.agents.cli.options import LazyGroup, confirmed, json_option
from spillway.agents.live import leftovers
from spillway.agents.live import topics as live_topics
from spillway.agents.live.groups import group_ids
from spillway.agents.supervise.registry import ServeEntry
from spillway.lineage.errors import UsageError
from spillway.topology.acls import grants
from spillway.topology.topics import mismatches, topic_plan


@click.group(cls=LazyGroup)
def topics() -> None:
    """List a pipeline's topics and who may write them, or delete them.

    \b
    Example: spillway broker topics delete pipeline.yaml
    """  # noqa: D301 - click's own marks


@topics.command("list")
@from_source
@json_option
def list_topics(source: Source, *, as_json: bool) -> None:
    """List the topics that a pipeline needs, whether the cluster has them, and what is wrong with them.

    Below are the inputs of stages that the file has no more, where records lie unread; in JSON, with how many.
    """
    plan = topic_plan(source.spec)
    there = live_topics.described(source.settings, [topic.name for topic in plan])
    for wrong in mismatches([topic for topic in plan if topic.name in there], there):
        click.echo(wrong, err=True)
    left = [each for each in leftovers.left(source.settings, source.spec) if each.unread]
    if as_json:
        told: dict[str, int] = {topic.name: topic.name in there for topic in plan}
        click.echo(json.dumps(told | {each.topic: each.unread for each in left}))
        return
    rows = [(topic.name, "there" if topic.name in there else "missing", topic.purpose) for topic in plan]
    click.echo("\n".join([*columns(rows), *map(str, left)]))


@topics.command()
@from_source
def acls(source: Source) -> None:
    """Print the ACLs that a pipeline needs, as commands of Kafka's own kafka-acls.sh.

    Each role has a principal, User:PIPELINE-ROLE: client, stage (fronts and shards), gate, learner, supervisor and
    operator. Learners of the pipeline are included. docs/security.md says what each topic is for. Nothing is changed,
    and no cluster is asked: set BOOTSTRAP and ADMIN (a file of client settings) and run what is printed.

    \b
    Example: spillway broker topics acls pipeline.yaml > acls.sh
    """  # noqa: D301 - click's own marks
    for grant in grants(source.pipeline):
        click.echo(grant.command(source.spec.name))


@topics.command()
@from_source
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete(source: Source, *, yes: bool) -> None:
    """Delete a pipeline's topics and consumer groups, with all queries, outcomes, states and dead letters.

    Those of its learners go with them, and those of stages that the file does not have any more.

    Refused while the pipeline is served from here, or while one of its consumer groups has members.

    \b
    Example: spillway broker topics delete pipeline.yaml
    """  # noqa: D301 - click's own marks
    spec = source.spec
    served = ServeEntry.running(source.run_dir, spec.name)
    if served is not None:
        raise UsageError(f"{spec.name} is served by process {served.pid}: stop it first")
    settings = source.settings
    specs = [spec, *(learner.spec for learner in source.pipeline.learners)]
    planned = dict.fromkeys(topic.name for each in specs for topic in topic_plan(each))  # some are of several
    left = [each for every in specs for each in leftovers.left(settings, every)]
    there = [*live_topics.present(settings, planned), *(each.topic for each in left)]
    if not there:
        click.echo(f"{settings.bootstrap} has no topic of {spec.name}")
        return
    groups = [group for every in specs for group in group_ids(every)]
    groups += [group for each in left for group in each.groups if group not in groups]
    confirmed(f"delete {len(there)} topics of {spec.name} on {settings.bootstrap}, with all their records", yes=yes)
    live_topics.delete(settings, there, groups)
    click.echo(f"{len(there)} topics of {spec.name} are deleted")
