"""The running batch of a stage that generates: who joins it between two iterations, and who leaves.

An iteration advances every running sequence: one that decodes by a token, one that is still read by the part of the
prompt that the chunk has room for. Between iterations those that ended leave, and waiting ones join, in the policy's
order and as far as three bounds allow: running sequences, tokens held by them, and prompt tokens per iteration. A
policy judges a request at that moment, when t_b = t_e = now, so before anything is spent on it. Where decoding runs
out of token room, the sequence that joined last makes room and later begins anew with its prompt and what it had
produced; it is not judged again.

The driver says when an iteration begins and ends. Iterations in which nobody can join or leave are all alike, so a
driver in virtual time takes many at once: `begin` says how many at most, and `end` how many there were. What each
iteration took is charged to those who ran: the reading of a prompt to its own, the rest in equal parts.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING

from spillway.agents.core.policy import Load, Policy, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.rag.generation import Generation, TokenProfile


@dataclass(frozen=True, slots=True)
class Iteration:
    """What runs next: so many sequences, so many prompt tokens, and for how many iterations nothing will change."""

    started: float
    running: int
    prefill: int
    repeats: int
    seconds: float  # of one, by the profile


@dataclass(frozen=True, slots=True)
class Progress:
    """What iterations brought: whose first token is out, and who ended (possibly the same ones)."""

    first: list[Generation]
    ended: list[Generation]


class ContinuousBatcher:
    """One queue, and the running batch that it feeds. `drops` is appended to by `begin`; drain it.

    `now` must not decrease. `begin` and `end` alternate; `push` may come at any time.
    """

    __slots__ = (
        "_account", "_decoding", "_ends", "_first", "_held", "_iteration", "_own",
        "_policy", "_profile", "_reading", "_running", "_serial", "_tick", "_used", "arrived", "busy", "completed",
        "drops", "iterations", "started", "total_drops",
    )  # fmt: skip

    def __init__(self, policy: Policy, profile: TokenProfile) -> None:
        self._policy = policy
        self._profile = profile
        self._first: Callable[[float, Generation], None] | None = getattr(policy, "first", None)
        self._own: Callable[[float, Generation], None] | None = getattr(policy, "ended", None)
        self._running: dict[Generation, None] = {}  # in the order in which they joined
        self._held: deque[tuple[Generation, bool]] = deque()  # to join before the queue; whether yet to be judged
        self._reading: list[tuple[Generation, int]] = []  # read in this iteration, and how many tokens of each
        self._ends: list[tuple[int, int, Generation]] = []  # heap: the iteration that brings the last token
        self._decoding = 0
        self._serial = 0
        self._tick = 0  # iterations so far
        self._used = 0  # tokens that the running ones hold, their prompts as a whole
        self._account = 0.0  # seconds charged in equal parts to each that ran all the time
        self._iteration: Iteration | None = None
        self.drops: list[tuple[Generation, Refusal]] = []
        self.arrived = self.started = self.completed = self.total_drops = self.iterations = 0
        self.busy = 0.0

    # What happens ----------------------------------------------------------------------------------------------

    def push(self, now: float, request: Generation) -> None:
        """Take a request; it may join when the next iteration begins. Raises ValueError for one that never can."""
        if request.prompt + request.output > self._profile.kv:
            raise ValueError(
                f"{request.request_id}: {request.prompt} + {request.output} tokens can never be held; "
                f"the stage holds {self._profile.kv}"
            )
        self.arrived += 1
        self._policy.push(now, request)

    def begin(self, now: float) -> Iteration | None:
        """Let in who may join, and say what runs now; None where nothing does."""
        if self._iteration is not None:
            raise ValueError("an iteration runs already")
        self._make_room()
        room = self._read_on()
        self._join(now, room)
        running = len(self._running)
        if not running:
            return None
        prefill = sum(tokens for _, tokens in self._reading)
        repeats = 1 if prefill else self._alike()
        self._iteration = Iteration(now, running, prefill, repeats, self._profile.step(running, prefill))
        return self._iteration

    def end(self, now: float, repeats: int = 1) -> Progress:
        iteration = self._iteration
        if iteration is None or not 1 <= repeats <= iteration.repeats:
            raise ValueError(f"{repeats} iterations ended of {iteration}")
        self._iteration = None
        took = iteration.seconds * repeats
        self.busy += took
        self.iterations += repeats
        self._tick += repeats
        self._used += self._decoding * repeats
        reading = min(took, self._profile.gamma * iteration.prefill)
        self._account += (took - reading) / iteration.running
        first, ended = self._read(now, reading / iteration.prefill if iteration.prefill else 0.0)
        while self._ends and self._ends[0][0] <= self._tick:
            ended.append(heappop(self._ends)[-1])
            self._decoding -= 1
        for request in ended:
            self._leave(now, request)
        return Progress(first, ended)

    def load(self) -> Load:
        """Count what has come, gone and stayed so far; an iteration counts as a batch."""
        return Load(
            arrived=self.arrived,
            dropped=self.total_drops,
            started=self.started,
            completed=self.completed,
            batches=self.iterations,
            busy=self.busy,
            queued=len(self._policy) + len(self._held),
            forming=0,
            running=len(self._running),
        )

    # Inside ----------------------------------------------------------------------------------------------------

    def _alike(self) -> int:
        soonest = self._ends[0][0] - self._tick
        room = self._profile.kv - self._used
        return soonest if room == inf else max(1, min(soonest, int(room) // self._decoding))

    def _make_room(self) -> None:
        while len(self._running) > 1 and self._used + len(self._running) > self._profile.kv:
            request = next(reversed(self._running))
            del self._running[request]
            decodes = request.left == 0
            if decodes:
                self._ends = [entry for entry in self._ends if entry[-1] is not request]
                heapify(self._ends)
                self._decoding -= 1
                request.held += self._tick - request.since
            self._used -= request.prompt + request.held
            request.charged += self._account - request.mark
            self._held.appendleft((request, False))

    def _read_on(self) -> float:
        room = self._profile.chunk
        self._reading = []
        for request in reversed(self._running):  # only the latest can be half read
            if not request.left:
                break
            room -= self._take(request, room)
        return room

    def _take(self, request: Generation, room: float) -> int:
        tokens = int(min(request.left, room))
        self._reading.append((request, tokens))
        return tokens

    def _join(self, now: float, room: float) -> None:
        profile = self._profile
        while room > 0 and len(self._running) < profile.most:
            if self._held:
                request, judged = self._held.popleft()
            else:
                waiting: Generation | None = self._policy.pop(now)  # type: ignore[assignment]  # only such are pushed
                if waiting is None:
                    return
                request, judged = waiting, True
            need = request.prompt + request.held
            if self._running and self._used + need + len(self._running) + 1 > profile.kv:
                self._held.appendleft((request, judged))
                return
            if judged:
                refusal = self._policy.judge(now, now, request)
                if refusal is not None:
                    self.drops.append((request, refusal))
                    self.total_drops += 1
                    continue
                request.entered = request.started = now
                self.started += 1
            request.left = need
            request.mark = self._account
            self._running[request] = None
            self._used += need
            room -= self._take(request, room)

    def _read(self, now: float, per_token: float) -> tuple[list[Generation], list[Generation]]:
        """Account for what was read of prompts; give those whose first token is out, and those that ended with it."""
        first: list[Generation] = []
        ended: list[Generation] = []
        for request, tokens in self._reading:
            request.left -= tokens
            request.charged += tokens * per_token
            if request.left:
                continue
            self._used += 1
            request.held += 1
            request.since = self._tick
            if request.first == -inf:
                request.first = now
                first.append(request)
                if self._first is not None:
                    self._first(now, request)
            if request.held == request.output:
                ended.append(request)
                continue
            self._decoding += 1
            due = self._tick + request.output - request.held
            self._serial += 1
            heappush(self._ends, (due, self._serial, request))
        return first, ended

    def _leave(self, now: float, request: Generation) -> None:
        del self._running[request]
        self._used -= request.prompt + request.output
        request.held = request.output
        request.charged += self._account - request.mark
        self.completed += 1
        if self._own is not None:
            self._own(now, request)
