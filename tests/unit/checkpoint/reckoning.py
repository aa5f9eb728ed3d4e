"""The fate of every version by its definition: slowly, from whole logs that were never compacted."""

from spillway.checkpoint.logs import Fate
from spillway.checkpoint.versions import INITIAL
from spillway.lineage.replication import Base, Fence, Manifest


def valid(records):
    """The records that count: of the newest fenced epoch, and of the first claimant who fenced it."""
    epoch, claimant, found = 0, "", []
    for record in records:
        if isinstance(record, Fence):
            if record.epoch > epoch:
                epoch, claimant = record.epoch, record.claimant
                found.append(record)
        else:
            of = record.version.epoch if isinstance(record, Manifest) else record.epoch
            if of == epoch and record.claimant == claimant:
                found.append(record)
    return found


def chain(records):
    """The bases on the way from the newest epoch down to the initial state: epoch -> base."""
    bases = {record.epoch: record.version for record in records if isinstance(record, Base)}
    epoch, way = max(bases, default=0), {}
    while epoch:
        way[epoch] = bases[epoch]
        epoch = bases[epoch].epoch
    return way


def on(way, version):
    """Whether a version lies on that way: its ends are the bases of the epochs that follow on it."""
    if version == INITIAL:
        return True
    ends = [base.n for base in way.values() if base.epoch == version.epoch]
    return version.epoch in way and way[version.epoch].n < version.n and (not ends or version.n <= ends[0])


def fates(logs, marks):
    """The fate of each mark. `logs`: place -> all records."""
    counting = {place: valid(records) for place, records in logs.items()}
    ways = {place: chain(records) for place, records in counting.items()}
    needs = {}  # (place, n) -> what a version with that n rests on; nothing for one without a manifest
    for place, records in counting.items():
        manifests = sorted(
            (r for r in records if isinstance(r, Manifest) and on(ways[place], r.version)), key=lambda r: r.version.n
        )
        needs[place] = [(r.version.n, r.requires) for r in manifests]

    def rests_on(mark):
        """All marks below the first manifest at or above this one; None where there is no such manifest."""
        found = []
        for n, requires in needs[mark.place]:
            found += requires
            if n >= mark.version.n:
                return found
        return None

    def known(mark):
        return mark.version.epoch <= max(ways[mark.place], default=0)

    everything = {*marks, *(m for rows in needs.values() for _, requires in rows for m in requires)}
    dead = {mark for mark in everything if known(mark) and not on(ways[mark.place], mark.version)}
    while True:
        # What has no manifest is dead all the same if a manifest below it, on its way, is.
        more = {
            mark
            for mark in everything - dead
            if known(mark)
            and any(
                m in dead
                for n, requires in needs[mark.place]
                for m in requires
                if n <= mark.version.n or n == first_at(needs[mark.place], mark.version.n)
            )
        }
        if not more:
            break
        dead |= more
    durable = {mark for mark in everything - dead if known(mark) and rests_on(mark) is not None}
    while True:
        less = {mark for mark in durable if not all(m in durable for m in rests_on(mark) if m.version != INITIAL)}
        if not less:
            break
        durable -= less
    judged = {mark: Fate.OPEN if known(mark) else Fate.UNREAD for mark in marks}
    judged.update(dict.fromkeys(durable & judged.keys(), Fate.DURABLE))
    judged.update(dict.fromkeys(dead & judged.keys(), Fate.DEAD))
    return judged


def first_at(rows, n):
    return next((at for at, _ in rows if at >= n), None)
