"""What the policies cost: a decision with a thousand waiting, and the simulator's speed.

Processor time, on the machine at hand. The cost of a policy is that of its `push`, `pop` and `judge` with a queue that
holds 1,000 requests all the time, as at 1,000 requests a second under heavy overload; `depq` is push and pop alone.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from agents.bench.pard import paper
from agents.bench.pard.applications import application, throughput
from agents.bench.pard.cases import Case, set_up, simulated
from agents.bench.pard.output import Table
from agents.core.policies import make
from agents.core.policy import StageFacts, StageView
from agents.core.request import Request

if TYPE_CHECKING:
    from agents.bench.pard.sections import Result, Setting

QUEUE = 1_000
RATE = 1_000.0
DECISIONS = 20_000
REPEATS = 5
POLICIES = ("naive", "nexus", "clipper++", "pard", "fcfs", "hbf", "lbf", "spillway")
SIZES = (100_000, 1_000_000)
LONG = 10_000_000


# A decision ---------------------------------------------------------------------------------------------------------


def measure_cost(setting: Setting) -> Result:
    """Time the decisions of each policy, and take a request's latency from a run under stress."""
    decisions = 2_000 if setting.quick else DECISIONS
    repeats = 1 if setting.quick else REPEATS
    case = Case("lv", "tweet-like", "pard", seconds=20 if setting.quick else setting.seconds)
    result = simulated(case, set_up(case))
    latency = (result.finished - result.due)[result.kind == 1]
    found = {}
    for name in setting.policies(POLICIES):
        runs = [_decisions(name, decisions) for _ in range(repeats)]
        found[name] = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    stages = len(application("lv").spec.stages)
    return {"latency": float(np.median(latency)), "stages": stages, "policies": found, "queue": QUEUE, "rate": RATE}


def _view() -> StageView:
    spec = application("lv").spec
    facts = {
        stage.name: StageFacts(stage.batch_size, stage.emulated.duration, stage.workers)
        for stage in spec.stages
        if stage.emulated is not None
    }
    names = [stage.name for stage in spec.stages]
    after = {name: tuple(names[place + 1 : place + 2]) for place, name in enumerate(names)}
    return StageView(names[0], slo=spec.slo, facts=facts, successors=after)


def _decisions(name: str, count: int) -> dict[str, float]:
    rng = np.random.default_rng(0)
    sent = np.arange(2 * count + QUEUE) / RATE
    deadlines = (sent + 0.5 + 0.1 * rng.standard_normal(len(sent))).tolist()
    requests = [Request("", 0, at, deadline, at, (), {}) for at, deadline in zip(sent.tolist(), deadlines, strict=True)]
    policy = make(name, _view())
    for request in requests[:QUEUE]:
        policy.push(request.sent, request)
    push, pop, judge = policy.push, policy.pop, policy.judge
    before = time.process_time()
    for request in requests[QUEUE : QUEUE + count]:
        push(request.sent, request)
        pop(request.sent)
    middle = time.process_time()
    for request in requests[QUEUE + count :]:
        now = request.sent
        push(now, request)
        popped = pop(now)
        if popped is not None:
            judge(now, now, popped)
    end = time.process_time()
    return {"depq": (middle - before) / count, "decision": (end - middle) / count}


def cost_tables(result: Result) -> list[Table]:
    rows = []
    for name, each in result["policies"].items():
        share = each["depq"] * result["stages"] / result["latency"]
        verdict = "yes" if share < paper.DEPQ_SHARE and each["decision"] < paper.DECISION else "**no**"
        rows.append(
            (name, f"{1e6 * each['depq']:.2f}", f"{100 * share:.4f} %", f"{1e6 * each['decision']:.2f}", verdict)
        )
    columns = ("policy", "push and pop, us", "share of latency", "push, pop and judge, us", "within")
    note = (
        f"A queue of {QUEUE}; the share is that of all {result['stages']} stages in the median latency of lv "
        f"({1000 * result['latency']:.0f} ms). To reach: {100 * paper.DEPQ_SHARE:g} % and {1e6 * paper.DECISION:g} us."
    )
    return [Table("Cost of a policy's decision", columns, rows, (note,))]


# The simulator -----------------------------------------------------------------------------------------------------


def measure_speed(setting: Setting) -> Result:
    """Simulate lv with more and more requests; 1e7 only where it may take minutes."""
    sizes = (5_000,) if setting.quick else (*SIZES, LONG) if setting.long else SIZES
    rows = [_speed(policy, size) for policy in setting.policies(("pard", "spillway")) for size in sizes]
    return {"runs": rows}


def _speed(policy: str, requests: int) -> dict[str, Any]:
    case = Case("lv", "steady", policy, seconds=1)
    spec = application("lv").spec
    workers = tuple(stage.workers for stage in spec.stages)
    rate = 0.7 * min(n * each for n, each in zip(workers, throughput(spec, {}).values(), strict=True))
    arrivals = np.cumsum(np.random.default_rng(0).exponential(1 / rate, requests))
    setup = replace(set_up(case), arrivals=arrivals, workers=workers)
    before = time.process_time()
    result = simulated(case, setup)
    spent = time.process_time() - before
    return {"policy": policy, "requests": requests, "visits": result.visits, "seconds": spent}


def speed_tables(result: Result) -> list[Table]:
    """Visits a second and the cost of one."""
    rows = []
    for run in result["runs"]:
        rate, cost = run["visits"] / run["seconds"], 1e6 * run["seconds"] / run["visits"]
        rows.append((run["policy"], f"{run['requests']:,}", f"{run['visits']:,}", f"{rate:,.0f}", f"{cost:.2f}"))
    columns = ("policy", "requests", "stage visits", "visits per processor second", "us a visit")
    note = "To reach: 200,000 a second with pard on one core, and the same cost from 1e5 to 1e7 (`--long`)."
    return [Table("The simulator's speed, lv at 70 % of its capacity", columns, rows, (note,))]
