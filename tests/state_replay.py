"""Whether a shard's newest durable version is what its recorded batches come to, in the log and in what was sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway.agents.models.loading import load_stateful_model
from spillway.agents.models.state import fingerprint
from spillway.agents.models.stateful import check_model
from spillway.checkpoint.assembly import assemble
from spillway.checkpoint.manifests import version_digest
from spillway.lineage.marks import INITIAL, Version
from tests.state_messages import print_of
from tests.state_runs import run

if TYPE_CHECKING:
    from spillway.lineage.marks import Place
    from spillway.lineage.replication import Batch
    from tests.state_history import Histories
    from tests.state_messages import Messages
    from tests.state_runs import Run


def state_problems(place: Place, histories: Histories, messages: Messages, *, random: bool) -> list[str]:
    """Put the newest durable version together as a newcomer would, and compare it with a replay, unless `random`.

    Raises SpillwayError where a chunk is missing or damaged.
    """
    stage, shard = place
    durable = histories.logs.newest_durable(place)
    problems = record_problems(place, histories)
    if durable == INITIAL or problems:
        return problems
    manifest = histories.manifests[place].get(durable)
    if manifest is None:
        return [f"{stage}/{shard}: the manifest of {durable}, which is durable, is not in the log"]
    contents = histories.contents(place, manifest)
    if version_digest(contents) != manifest.digest:
        problems.append(f"{stage}/{shard} {durable}: its contents have another digest than its manifest says")
    shared, keyed = assemble(contents, histories.now(place))
    if random or problems:
        return problems
    spec = messages.spec.stage(stage)
    model = load_stateful_model(stage, str(spec.model), spec.arguments)
    stored = shared if check_model(stage, model) == "shared" else keyed or {}
    batches = [batch for _, batch in histories.batches(place).values()]
    batches = batches[: durable.n - contents.later]  # where the copy is older, a recovery replays what came
    replayed = run(model, messages.inputs(stage, batches))
    if fingerprint(replayed.state) != fingerprint(stored):
        problems.append(f"{stage}/{shard} {durable}: {_differences(replayed.state, stored)}")
    return problems + sent_problems(place, messages, batches, replayed)


def record_problems(place: Place, histories: Histories) -> list[str]:
    """Every version is recorded, and no query, nor any record, twice."""
    recorded, durable = histories.batches(place), histories.logs.newest_durable(place)
    name = f"{place[0]}/{place[1]}"
    problems = [f"{name}: no record of version {n}" for n in range(1, durable.n + 1) if n not in recorded]
    records: dict[tuple[int, int], Version] = {}
    queries: dict[str, Version] = {}
    for version, batch in recorded.values():
        for record in (*batch.taken, *batch.dropped):
            where = f"{name} offset {record.offset} of partition {record.partition}"
            before = records.setdefault((record.partition, record.offset), version)
            if before != version:
                problems.append(f"{record.request}: {where} is taken in {before} and again in {version}")
            first = queries.setdefault(record.request, version)
            if first != version:
                problems.append(f"{record.request}: {name} has applied it in {first} and again in {version}")
    return problems


def sent_problems(place: Place, messages: Messages, batches: list[Batch], replayed: Run) -> list[str]:
    """What the stage has sent is what a replay gives; stages that split are not looked at."""
    stage, shard = place
    spec = messages.spec.stage(stage)
    if spec.split is not None:
        return []
    right = {
        request: output
        for batch, outputs in zip(batches, replayed.outputs, strict=True)
        for request, output in zip(dict.fromkeys(record.request for record in batch.taken), outputs, strict=True)
    }
    problems = []
    for topic, record, told in messages.sent():
        hop = told.hop
        if hop is None or hop.stage != stage or spec.shard_of(hop.partition) != shard or told.lost:
            continue
        if not messages.live(told) or told.request_id not in right:
            continue
        sent, gives = messages.content(record)[1], right[told.request_id]
        if print_of(sent) != print_of(gives):
            by = ", ".join(map(str, hop.marks))
            problems.append(
                f"{told.request_id}: {stage} has sent {sent!r:.80} to {topic} ({by}), a replay gives {gives!r:.80}"
            )
    return problems


def _differences(replayed: Any, stored: Any) -> str:
    """Where a state is not what a replay of its batches comes to."""
    names = sorted(set(replayed) | set(stored), key=str)
    wrong = [
        str(name)
        for name in names
        if name not in replayed or name not in stored or _differ(replayed[name], stored[name])
    ]
    return f"its state is not that of a replay of its batches; it differs in {', '.join(wrong[:5]) or 'nothing named'}"


def _differ(one: Any, other: Any) -> bool:
    return fingerprint({"": one}) != fingerprint({"": other})
