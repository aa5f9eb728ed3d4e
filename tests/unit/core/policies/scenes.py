"""A chain of three stages, worked out by hand, for tests of policies.

d is 50 ms at a, 40 at b, 30 at c (batches of 5); SLO 500 ms. At the second synchronisation b says q = 10 ms of 30
requests and q = 30 ms of 10, so 15 ms, and waits of 20 ms; c says q = 2 ms and waits of 5 ms. So behind a:
sum q = 17, sum d = 70, w = 25, together 112 ms.
"""

from spillway.agents.core.policies import make, selected
from spillway.agents.core.policy import Load, StageFacts, StageState, StageView
from spillway.agents.core.request import Request
from spillway.agents.models.loading import load_policy

TAKES = {"a": 0.05, "b": 0.04, "c": 0.03}
CHAIN = {"a": ("b",), "b": ("c",), "c": ()}
FACTS = {name: StageFacts(5, lambda n, each=takes: each * n / 5, 2) for name, takes in TAKES.items()}
IDLE = Load(0, 0, 0, 0, 0, 0.0, 0, 0, 0)


def view(stage="a", **more):
    return StageView(stage, slo=0.5, facts=FACTS, successors=CHAIN, **more)


def told(stage, replica=0, waits=(), **said):
    return StageState(stage, replica, 2.0, waits=list(waits), waits_seen=len(waits), batch=5, **said)


def states(rate=0.0):
    """What all stages say; `rate` arrives at a, a second. It can do 200."""
    return {
        "a": [told("a", arrival_rate=rate)],
        "b": [told("b", 0, [0.02] * 8, queueing=0.01, entered=30.0), told("b", 1, queueing=0.03, entered=10.0)],
        "c": [told("c", 0, [0.005] * 8, queueing=0.002, entered=1.0)],
    }


def request(name="r", sent=100.0, arrived=None, slo=0.5):
    return Request(name, 0, sent, sent + slo, sent if arrived is None else arrived, (), {})


def told_policy(name, stage="a", rate=0.0, **more):
    policy = make(selected(name, load_policy), view(stage, **more))
    policy.tick(2.0, IDLE, states(rate))
    return policy
