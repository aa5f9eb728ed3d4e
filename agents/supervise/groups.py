"""What consumer groups have committed, asked of the broker.

A stateless stage's replicas, and the gate's, share a group. Each member of a stateful stage is in one of its own, for
the partitions of its shard: whatever stands still there is its doing, whether it subscribes or assigns itself. A backup
commits the durable position that it follows, so that one which hangs is seen as a primary is.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from spillway.agents.live.admin import ANSWER_SECONDS, Admin
from spillway.agents.live.committed import GroupOffsets
from spillway.agents.live.group_members import GroupMembers
from spillway.agents.live.groups import group_id, member_label, member_of, replica_of
from spillway.agents.run.inputs import writes_transactions
from spillway.agents.supervise.child import GATE, STANDBY
from spillway.agents.supervise.registry import entries
from spillway.agents.supervise.scrape import Figures, Snapshot, figures, scrape
from spillway.agents.supervise.watchdog import GroupSight, PartitionSight
from spillway.checkpoint.inputs import is_lost
from spillway.lineage.errors import BrokerError
from spillway.lineage.ports import Bounds
from spillway.topology.topics import ingress, outcomes, stage_input

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

    from spillway.producers.connection import ClientSettings
    from spillway.topology.load import Pipeline


# Looks at the children from outside, in a thread, so that a slow answer never holds up the supervisor.
#
# Two things are looked at: the metrics that each process shows (for people), and what each stage's consumer group has
# committed (for the watchdog). The supervisor takes the latest of both without waiting.


class MetricsReader:
    """Readings of all processes of a pipeline, each against the one before."""

    def __init__(self, run_dir: Path, pipeline: str) -> None:
        self._run_dir = run_dir
        self._pipeline = pipeline
        self._before: dict[tuple[str, int], Snapshot] = {}

    def read(self, now: float) -> dict[str, Figures]:
        found: dict[str, Figures] = {}
        latest: dict[tuple[str, int], Snapshot] = {}
        for entry in entries(self._run_dir, self._pipeline):
            snapshot = scrape(entry, now) if entry.role != STANDBY and entry.alive() else None
            if snapshot is not None:
                key = (entry.name, entry.pid)
                latest[key] = snapshot
                found[entry.name] = figures(entry, snapshot, self._before.get(key))
        self._before = latest
        return found


class Observer:
    """The thread. `figures` and `take_sights` give what was seen last."""

    def __init__(self, metrics: MetricsReader, groups: KafkaGroups | None, stages: Sequence[str], every: float) -> None:
        """`every`: seconds between looks at the groups; metrics are read each second."""
        self.figures: Mapping[str, Figures] = {}
        self._metrics = metrics
        self._groups = groups
        self._stages = stages
        self._every = every
        self._sights: deque[tuple[float, Mapping[str, GroupSight]]] = deque(maxlen=1)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop looking; returns when the thread is done, or soon."""
        self._stopping.set()
        self._thread.join(5.0)

    def take_sights(self) -> tuple[float, Mapping[str, GroupSight]] | None:
        """What the groups were at, and when, if that is new since the last call."""
        return self._sights.pop() if self._sights else None

    def _run(self) -> None:
        next_groups = time.monotonic() + self._every
        while not self._stopping.wait(min(1.0, self._every)):
            now = time.monotonic()
            try:
                self.figures = self._metrics.read(now)
                if self._groups is not None and now >= next_groups:
                    next_groups = now + self._every
                    self._look(self._groups)
            except Exception:  # of one look: without any, nobody would see a stage that stands still
                log.exception("the stages could not be looked at; trying again")
        if self._groups is not None:
            self._groups.close()

    def _look(self, groups: KafkaGroups) -> None:
        try:
            sights = groups.look(self._stages)
        except BrokerError as error:
            log.warning("cannot read the stages' committed offsets: %s", error)
            return
        self._sights.append((time.monotonic(), sights))


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Watched:
    """A group that is looked at: what it reads, and the one process that is in it, where that is certain."""

    topic: str
    partitions: tuple[int, ...]
    only: int | None = None  # by its number, as a replica
    markers: bool = False  # transactions write the topic


def watched_groups(pipeline: Pipeline) -> dict[str, Watched]:
    spec, graph = pipeline.spec, pipeline.graph
    every = tuple(range(spec.partitions))
    found: dict[str, Watched] = {}
    for stage in spec.stages:
        topic = stage_input(spec.name, stage.name) if graph.predecessors[stage.name] else ingress(spec.name)
        markers = writes_transactions(spec, graph.predecessors[stage.name])
        if not stage.replicated:
            found[stage.name] = Watched(topic, every, markers=markers)
            continue
        for replica in range(stage.processes):
            shard, _ = member_of(stage, replica)
            mine = tuple(p for p in every if stage.shard_of(p) == shard)
            found[member_label(stage, replica)] = Watched(topic, mine, only=replica, markers=markers)
    return found | {GATE: Watched(outcomes(spec.name), every, markers=writes_transactions(spec, graph.order))}


class KafkaGroups:
    """Looks at the groups of one pipeline; `watched` has them by their names without the pipeline's."""

    def __init__(self, settings: ClientSettings, pipeline: str, watched: Mapping[str, Watched]) -> None:
        self._members = GroupMembers(settings)
        self._admin = Admin(settings.confluent())
        self._pipeline = pipeline
        self._watched = watched
        self._committed = {group: GroupOffsets(settings.confluent(), group_id(pipeline, group)) for group in watched}

    def look(self, groups: Sequence[str]) -> dict[str, GroupSight]:
        """Every group now, but those whose coordinators do not answer; may block for seconds.

        Raises `BrokerError` where the broker does not say.
        """
        try:
            return self._admin.once(lambda client: self._look(client, groups))
        except KafkaException as error:
            raise BrokerError(error.args[0].str()) from error

    def close(self) -> None:
        self._members.close()
        for committed in self._committed.values():
            committed.close()

    def _look(self, client: AdminClient, groups: Sequence[str]) -> dict[str, GroupSight]:
        replicas = self._replicas(groups)
        committed = self._committed_of(list(replicas))
        groups = list(committed)
        ends = self._offsets(client, groups, OffsetSpec.latest())
        begins = self._offsets(client, groups, OffsetSpec.earliest())
        sights = {}
        for group in groups:
            watched, seen = self._watched[group], {}
            owners = {p: replica for replica, partitions in replicas[group].items() for p in partitions}
            for p in watched.partitions:
                bounds, position = Bounds(begins[group, p], ends[group, p]), committed[group].get(p, -1)
                if min(bounds) < 0:  # there is no leader
                    continue
                if is_lost(None if position < 0 else position, bounds, markers=watched.markers):
                    continue  # whoever reads it has stopped it, as its log lost what comes next: nobody can move it
                # A position that was never committed, or lies in markers that were deleted, is the beginning.
                seen[p] = PartitionSight(max(position, bounds.start), bounds.end, owners.get(p))
            sights[group] = GroupSight(seen, frozenset(replicas[group]))
        return sights

    def _committed_of(self, groups: Sequence[str]) -> dict[str, dict[int, int]]:
        """What each group has committed, asked together: one coordinator that stands still holds up no other's answer.

        Raises `KafkaException` where none answers.
        """
        found: dict[str, dict[int, int]] = {}
        silent: KafkaException | None = None
        with ThreadPoolExecutor(max(1, len(groups))) as pool:
            asked = {group: pool.submit(self._offsets_of, group) for group in groups}
            for group, answer in asked.items():
                try:
                    found[group] = answer.result()
                except KafkaException as error:
                    silent = error
                    log.warning("cannot read the committed offsets of %s: %s", group, error.args[0].str())
        if silent is not None and not found:
            raise silent
        return found

    def _offsets_of(self, group: str) -> dict[int, int]:
        watched = self._watched[group]
        return self._committed[group].once(watched.topic, watched.partitions, ANSWER_SECONDS)

    def _offsets(self, client: AdminClient, groups: Sequence[str], spec: OffsetSpec) -> dict[tuple[str, int], int]:
        places = [(group, self._watched[group].topic, p) for group in groups for p in self._watched[group].partitions]
        asked = {TopicPartition(topic, p): spec for _, topic, p in places}
        answers = client.list_offsets(asked, request_timeout=ANSWER_SECONDS)
        by_topic = {(part.topic, part.partition): future.result().offset for part, future in answers.items()}
        return {(group, p): by_topic[topic, p] for group, topic, p in places}

    def _replicas(self, groups: Sequence[str]) -> dict[str, dict[int, tuple[int, ...]]]:
        """The replicas in each group, each with the partitions that it has."""
        watched = {group: self._watched[group] for group in groups}
        found = {group: {each.only: each.partitions} for group, each in watched.items() if each.only is not None}
        names = {group_id(self._pipeline, group): group for group in groups if group not in found}
        for name, members in (self._members.ask(list(names)) if names else {}).items():
            numbered = ((replica_of(member.name), member.partitions) for member in members)
            found[names[name]] = {replica: theirs for replica, theirs in numbered if replica is not None}
        return found
