"""The event loop once more, compiled: for queues in order of arrival that drop nothing and wait for no batch to fill.

It does what `spillway.agents.sim.engine` does with `spillway.agents.core.batching` for policy `naive`, without a
batching delay and with batch limits that do not adapt, event by event in the same order and with the same sums: tests
hold every latency equal to the engine's, to the last bit. A plan is found by thousands of runs (InferLine, section
4.4), and this takes a thirtieth of the engine's time. Importing it needs numba.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

_Function = TypeVar("_Function", bound="Callable[..., Any]")

IDLE: Final = float("-inf")
ONE, ALL, ANY = 0, 1, 2  # how what meets at a stage, or at the gate, makes one: no join; all; the first


def _compiled(function: _Function) -> _Function:
    # Nothing is allocated in here: without numba's counting of references it takes a tenth of the time. What is called
    # for every message is set in; the arrays that a call hands over weigh more than what it does with them.
    inline = "always" if function.__name__ in {"_end", "_send", "_deliver"} else "never"
    made: _Function = njit(cache=True, nogil=True, _nrt=False, error_model="numpy", inline=inline)(function)
    return made


class Routes(NamedTuple):
    """Where requests go. A *way* is one combination of choices; stages are numbered, and the gate comes after them."""

    way: NDArray[np.int32]  # of each request
    targets: NDArray[np.int32]  # [way, stage, place]: where a result is sent, in the order of sending; -1 ends it
    expected: NDArray[np.int32]  # [way, stage or gate]: how many results meet there
    rules: NDArray[np.int32]  # [stage or gate]: ONE, ALL or ANY
    roots: NDArray[np.int32]  # in the order of sending
    partition: NDArray[np.int32]  # of each request


class Stations(NamedTuple):
    """The queues, each with workers of its own; workers are numbered through, station by station."""

    owner: NDArray[np.int32]  # [stage, partition]: the station
    stage: NDArray[np.int32]  # [station]
    workers: NDArray[np.int32]  # [station]: how many
    limits: NDArray[np.int32]  # [stage]: the largest batch
    durations: Floats  # [stage, n]: seconds of a batch of n
    hops: Floats  # [stage or gate]: seconds that a message takes to get there


class _State(NamedTuple):
    ends: Floats  # [worker]: of the running batch
    forming: Ints  # [worker]: how many
    running: Ints
    side: Ints  # which half of `batches` forms
    station: Ints  # [worker]
    batches: NDArray[np.int32]  # [worker, half, place]
    first: Ints  # [station]: its first worker
    target: Ints  # [station]: the worker that an arrival is given to, or -1
    head: Ints  # [station]: the queue, a list by `after`; -1 ends it
    tail: Ints
    after: NDArray[np.int32]  # [stage, request]
    heard: NDArray[np.uint8]  # [stage or gate, request]: results so far
    times: Floats  # a heap of what is to happen: when,
    order: Ints  # [0, .] in which order it was planned, [1, .] what: a worker's batch ends, or a message comes
    done: NDArray[np.int32]  # the batch that just ended
    counts: Ints  # [0] in the heap, [1] planned so far, [2] requests that took longer than `slo`
    slo: Floats  # one


@_compiled
def _plan(state: _State, at: float, what: int) -> None:
    times, order, counts = state.times, state.order, state.counts
    place = counts[0]
    counts[0] += 1
    counts[1] += 1
    number = counts[1]
    while place > 0:  # a later number never goes before an equal time
        above = (place - 1) >> 1
        if times[above] <= at:
            break
        times[place] = times[above]
        order[0, place] = order[0, above]
        order[1, place] = order[1, above]
        place = above
    times[place] = at
    order[0, place] = number
    order[1, place] = what


@_compiled
def _next(state: _State) -> int:
    """Take the first off the heap, and say what it is; its time was `times[0]`."""
    times, order, counts = state.times, state.order, state.counts
    what = order[1, 0]
    counts[0] -= 1
    last = counts[0]
    at, number, moved = times[last], order[0, last], order[1, last]
    place = 0
    while True:
        below = 2 * place + 1
        if below >= last:
            break
        right = below + 1
        if right < last and (
            times[right] < times[below] or (times[right] == times[below] and order[0, right] < order[0, below])
        ):
            below = right
        if at < times[below] or (at == times[below] and number < order[0, below]):
            break
        times[place] = times[below]
        order[0, place] = order[0, below]
        order[1, place] = order[1, below]
        place = below
    times[place] = at
    order[0, place] = number
    order[1, place] = moved
    return int(what)


@_compiled
def _retarget(state: _State, stations: Stations, station: int) -> None:
    limit = stations.limits[stations.stage[station]]
    first = state.first[station]
    found = -1
    soonest = np.inf
    for worker in range(first, first + stations.workers[station]):
        if state.forming[worker] < limit and state.ends[worker] < soonest:
            soonest = state.ends[worker]
            found = worker
            if soonest == IDLE:
                break
    state.target[station] = found


@_compiled
def _start(state: _State, stations: Stations, station: int, worker: int, now: float) -> None:
    stage = stations.stage[station]
    count = state.forming[worker]
    state.side[worker] = 1 - state.side[worker]
    state.running[worker] = count
    state.ends[worker] = now + stations.durations[stage, count]
    _plan(state, state.ends[worker], worker)
    taken = 0
    waiting = state.head[station]
    while waiting >= 0 and taken < stations.limits[stage]:
        state.batches[worker, state.side[worker], taken] = waiting
        taken += 1
        waiting = state.after[stage, waiting]
    state.head[station] = waiting
    state.forming[worker] = taken
    _retarget(state, stations, station)


@_compiled
def _push(state: _State, stations: Stations, station: int, request: int, now: float) -> None:
    stage = stations.stage[station]
    worker = state.target[station]
    if worker < 0:
        state.after[stage, request] = -1
        if state.head[station] < 0:
            state.head[station] = request
        else:
            state.after[stage, state.tail[station]] = request
        state.tail[station] = request
        return
    place = state.forming[worker]
    state.batches[worker, state.side[worker], place] = request
    state.forming[worker] = place + 1
    if state.ends[worker] == IDLE:
        _start(state, stations, station, worker, now)
    elif place + 1 >= stations.limits[stage]:
        _retarget(state, stations, station)


@_compiled
def _complete(state: _State, stations: Stations, station: int, worker: int, now: float) -> None:
    state.ends[worker] = IDLE
    state.running[worker] = 0
    if state.forming[worker] == 0:  # it takes over what forms for the one that ends first
        source = -1
        soonest = np.inf
        first = state.first[station]
        for other in range(first, first + stations.workers[station]):
            if state.running[other] and state.forming[other] and state.ends[other] < soonest:
                soonest = state.ends[other]
                source = other
        if source >= 0:
            count = state.forming[source]
            for place in range(count):
                state.batches[worker, state.side[worker], place] = state.batches[source, state.side[source], place]
            state.forming[worker] = count
            state.forming[source] = 0
    if state.forming[worker]:
        _start(state, stations, station, worker, now)
    else:
        _retarget(state, stations, station)


@_compiled
def _deliver(state: _State, stations: Stations, routes: Routes, stage: int, request: int, now: float) -> None:
    if routes.rules[stage] != ONE and not _meets(state, routes, stage, request):
        return
    _push(state, stations, stations.owner[stage, routes.partition[request]], request, now)


@_compiled
def _meets(state: _State, routes: Routes, place: int, request: int) -> bool:
    """Note that one more result is there; whether it is the one that was waited for."""
    state.heard[place, request] += 1
    wanted = 1 if routes.rules[place] == ANY else routes.expected[routes.way[request], place]
    return bool(state.heard[place, request] == wanted)


@_compiled
def _send(state: _State, stations: Stations, routes: Routes, stage: int, request: int, now: float) -> None:
    if stations.hops[stage] > 0:
        _plan(state, now + stations.hops[stage], -1 - (request * len(stations.limits) + stage))
    else:
        _deliver(state, stations, routes, stage, request, now)


@_compiled
def _end(
    due: Floats, finished: Floats, state: _State, stations: Stations, routes: Routes, worker: int, now: float
) -> None:
    """A worker's batch ends: its next one starts, then the results leave, as in the engine."""
    stages = len(stations.limits)
    station = state.station[worker]
    stage = stations.stage[station]
    count = state.running[worker]
    half = 1 - state.side[worker]
    for place in range(count):  # their room is filled anew when the next batch starts
        state.done[place] = state.batches[worker, half, place]
    _complete(state, stations, station, worker, now)
    for place in range(count):
        request = state.done[place]
        targets = routes.targets[routes.way[request], stage]
        if targets[0] >= 0:
            for other in range(1, len(targets)):
                if targets[other] < 0:
                    break
                _send(state, stations, routes, targets[other], request, now)
            _send(state, stations, routes, targets[0], request, now)
        elif routes.rules[stages] == ONE or _meets(state, routes, stages, request):
            finished[request] = now + stations.hops[stages]
            state.counts[2] += finished[request] - due[request] > state.slo[0]


@_compiled
def _loop(due: Floats, finished: Floats, state: _State, stations: Stations, routes: Routes, most_late: int) -> None:
    """Run to the end, or until more than `most_late` were too late."""
    stages = len(stations.limits)
    for index in range(len(due) + 1):
        sent = due[index] if index < len(due) else np.inf
        while state.counts[0] and state.times[0] < sent:
            now = state.times[0]
            what = _next(state)
            if what < 0:
                message = -1 - what
                _deliver(state, stations, routes, message % stages, message // stages, now)
            else:
                _end(due, finished, state, stations, routes, what, now)
                if state.counts[2] > most_late:
                    return
        if index < len(due):
            for root in range(1, len(routes.roots)):
                _send(state, stations, routes, routes.roots[root], index, sent)
            _send(state, stations, routes, routes.roots[0], index, sent)


def run(
    due: Floats, routes: Routes, stations: Stations, slo: float = np.inf, most_late: int | None = None
) -> tuple[Floats, int]:
    """When each request ended (seconds; NaN where the run ended first), and how many took longer than `slo`.

    It ends early when more than `most_late` did.
    """
    count, stages = len(due), len(stations.limits)
    total, limit = int(stations.workers.sum()), int(stations.limits.max())
    room = total + 1 + (count * stages if stations.hops.any() else 0)
    queues = len(stations.stage)
    state = _State(
        ends=np.full(total, IDLE),
        forming=np.zeros(total, np.int64),
        running=np.zeros(total, np.int64),
        side=np.zeros(total, np.int64),
        station=np.repeat(np.arange(queues), stations.workers),
        batches=np.empty((total, 2, limit), np.int32),
        first=np.cumsum(stations.workers, dtype=np.int64) - stations.workers,
        target=np.cumsum(stations.workers, dtype=np.int64) - stations.workers,
        head=np.full(queues, -1),
        tail=np.full(queues, -1),
        after=np.empty((stages, count), np.int32),
        heard=np.zeros((stages + 1, count), np.uint8) if routes.rules.any() else np.zeros((1, 1), np.uint8),
        times=np.empty(room),
        order=np.empty((2, room), np.int64),
        done=np.empty(limit, np.int32),
        slo=np.array([slo]),
        counts=np.zeros(3, np.int64),
    )
    finished = np.full(count, np.nan)
    _loop(due, finished, state, stations, routes, count if most_late is None else most_late)
    return finished, int(state.counts[2])
