"""Compaction at its fiercest on a pipeline's logs, and whether what it has left is still enough."""

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from spillway.checkpoint.assembly import assemble
from spillway.lineage.errors import SpillwayError
from spillway.lineage.marks import INITIAL
from spillway.topology import topics
from tests.state_history import Histories
from tests.state_topics import gather
from tests.waiting import PATIENT_SECONDS

# A segment is full after a fifth of a second; what lies in an older one goes as soon as it has lain for a lease.
FIERCE = {
    "segment.ms": "200",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "1000",
    "max.compaction.lag.ms": "1500",
    "delete.retention.ms": "1000",
}


def compact_fiercely(bootstrap, pipeline):
    """Have the broker compact the version logs, the states and the claims all the time."""
    name = pipeline.spec.name
    logs = {topics.control(name)}
    for stage, _ in pipeline.spec.places:
        logs |= {topics.versions(name, stage), topics.state(name, stage)}
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in FIERCE.items()]
    resources = [ConfigResource(ResourceType.TOPIC, log, incremental_configs=entries) for log in sorted(logs)]
    admin = AdminClient({"bootstrap.servers": bootstrap})  # with a name: it must outlive what it was asked
    for future in admin.incremental_alter_configs(resources).values():
        future.result(PATIENT_SECONDS)


def left_problems(bootstrap, recording):
    """Whoever reads the compacted logs now finds the same versions durable, and their states whole."""
    fresh = gather(bootstrap, recording.pipeline, whole=False)
    whole, left = Histories(recording), Histories(fresh)
    problems = [*left.problems]
    gone = 0
    for place in whole.places:
        name = f"{place[0]}/{place[1]}"
        log = topics.versions(recording.pipeline.spec.name, place[0])
        gone += len(recording.of(log, place[1])) - len(fresh.of(log, place[1]))
        durable = left.logs.newest_durable(place)
        if durable != whole.logs.newest_durable(place):
            problems.append(
                f"{name}: in the compacted log {durable} is durable, not {whole.logs.newest_durable(place)}"
            )
        elif durable != INITIAL:
            try:
                manifest = left.manifests[place].get(durable)
                if manifest is None:
                    problems.append(f"{name}: the manifest of {durable} was compacted away")
                else:
                    assemble(left.contents(place, manifest), left.now(place))
            except SpillwayError as error:
                problems.append(f"{name} {durable}, after compaction: {error}")
    if not gone:
        problems.append("nothing was compacted: the run says nothing about compaction")
    return problems
