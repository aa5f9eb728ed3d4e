"""The simulator's model, reckoned in another way: stage by stage and worker by worker, without an event queue.

With a queue per worker, a worker's batches follow from its arrivals alone, one after the other, and a stage's arrivals
are what the stages before it have finished. Slow, short, and sharing no code with what it checks.

Several things may happen at one time: a batch hands its requests to idle workers, which then end together. What began
first happens first. So an event, an arrival from outside or the end of a batch, is a tuple (time, what it began with),
and an instant is a tuple (time, event, place among what the event brings); their order is the order of what happens.
"""

import itertools
from dataclasses import dataclass

NEVER = (float("-inf"), ())


@dataclass
class Stage:
    name: str
    batch: int
    workers: int
    alpha: float
    beta: float
    before: tuple[str, ...]

    def duration(self, count):
        return self.alpha + self.beta * count

    def end(self, start, count):
        return (start[0] + self.duration(count), start)


def brings(event, place):
    return (event[0], event, place)


def queue_per_worker(ready, stage, doomed):
    """All batches, as (end, requests), of a stage that hands its requests to its workers' queues in turn."""
    return [
        batch
        for worker in range(stage.workers)
        for batch in one_worker(list(itertools.islice(ready, worker, None, stage.workers)), stage, doomed)
    ]


def one_worker(queue, stage, doomed):
    opened = ends = NEVER  # start and end of the running batch
    while queue:
        forming, start = [], brings(ends, -1)
        while queue and len(forming) < stage.batch and queue[0][0][1] < ends:
            at, request = queue.pop(0)
            if not doomed(max(at[0], opened[0]), request):
                forming.append(request)
        if not forming:  # idle since `ends`: whoever comes next starts alone
            if not queue:
                return
            start, request = queue.pop(0)
            if doomed(start[0], request):
                continue
            forming = [request]
        opened, ends = start, stage.end(start, len(forming))
        yield ends, forming


def queue_for_all(ready, stage, _doomed):
    """All batches of a stage whose instances share one queue; drops nothing."""
    waiting = list(ready)  # queued, or not there yet
    instances = [{"ends": NEVER, "forming": []} for _ in range(stage.workers)]

    def start(instance, at):
        requests = instance["forming"]
        instance.update(ends=stage.end(at, len(requests)), forming=[])
        while waiting and waiting[0][0][1] < at[1] and len(instance["forming"]) < stage.batch:
            instance["forming"].append(waiting.pop(0)[1])
        return instance["ends"], requests

    while True:
        soonest = min((each for each in instances if each["forming"]), key=lambda each: each["ends"], default=None)
        roomy = [each for each in instances if len(each["forming"]) < stage.batch]
        if waiting and roomy and (soonest is None or waiting[0][0][1] < soonest["ends"]):
            at, request = waiting.pop(0)
            # The batch that starts first: at once where the instance is idle.
            chosen = min(roomy, key=lambda each: 0.0 if each["ends"] < at[1] else each["ends"][0])
            chosen["forming"].append(request)
            if chosen["ends"] < at[1]:
                yield start(chosen, at)
        elif soonest is not None:
            yield start(soonest, brings(soonest["ends"], -1))
        else:
            return


def reckon(stages, sent, dispatch=queue_per_worker, doomed=lambda now, r: False):
    """For every request when its prediction was made, None where it was dropped; by stage its batch sizes, sorted."""
    ends = {}
    sizes = {}
    for stage in stages:  # in topological order, the only sink last
        if stage.before:
            complete = set.intersection(*(set(ends[name]) for name in stage.before))
            ready = sorted((max(ends[name][request] for name in stage.before), request) for request in complete)
        else:
            ready = [(brings((at, ()), request), request) for request, at in enumerate(sent)]
        batches = list(dispatch(ready, stage, doomed))
        ends[stage.name] = {
            request: brings(end, place) for end, requests in batches for place, request in enumerate(requests)
        }
        sizes[stage.name] = sorted(len(requests) for _, requests in batches)
    last = ends[stages[-1].name]
    return [last[request][0] if request in last else None for request in range(len(sent))], sizes
