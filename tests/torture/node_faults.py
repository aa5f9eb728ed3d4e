"""What can go wrong with one node of three, or two: it dies, stands still, loses its disk; as functions of a run.

A node is struck for what it does at that moment: it controls the cluster, leads a partition of this or that topic, or
coordinates a group or the gate's transactions.
"""

import os
import shutil
import signal
import time

from spillway.agents.live.groups import group_id, instance_id
from spillway.lineage.metric_names import GATE
from spillway.topology import topics
from tests.nodes import ClusterBench
from tests.torture.faults import begin

_GOES_ON = 150  # outcomes: more than a second's load, so that a node's loss is felt before it is back
_DOWN_SECONDS = 20.0


def nodes_of(run):
    assert isinstance(run.bench, ClusterBench)
    return run.bench


# Whom it strikes -----------------------------------------------------------------------------------------------


def _leads(topic, partitions=1):
    return lambda run, rng: nodes_of(run).nodes.leader(topic(run), rng.randrange(partitions))


def _coordinates(stage):
    return lambda run, _rng: nodes_of(run).nodes.group_coordinator(group_id(run.name, stage))


ROLES = {
    "any": lambda _run, rng: rng.randrange(1, 4),
    "controller": lambda run, _rng: nodes_of(run).nodes.controller(),
    "ingress": _leads(lambda run: topics.ingress(run.name), 3),
    "input": _leads(lambda run: topics.stage_input(run.name, "b"), 3),
    "outcomes": _leads(lambda run: topics.outcomes(run.name), 3),
    "egress": _leads(lambda run: topics.egress(run.name), 3),
    "versions": _leads(lambda run: topics.versions(run.name, "a")),
    "state": _leads(lambda run: topics.state(run.name, "a")),
    "control": _leads(lambda run: topics.control(run.name)),
    "beat": _leads(lambda run: topics.beat(run.name)),
    "gate-group": _coordinates(GATE),
    "stage-group": _coordinates("t"),
    "transactions": lambda run, _rng: nodes_of(run).nodes.transaction_coordinator(instance_id(run.name, GATE, 0)),
}


# What is done to it --------------------------------------------------------------------------------------------


def dies(find):
    """The node is killed, and comes back when the pipeline has gone on without it."""

    def strike(run, rng):
        begin(run, rng)
        node = nodes_of(run).cluster.nodes[find(run, rng) - 1]
        run.faulted = time.time()
        node.kill()
        run.go_on(_GOES_ON)
        node.start()
        run.go_on()

    return strike


def stands_still(find):
    """The node is stopped with its connections open, and wakes up when the pipeline has gone on without it."""

    def strike(run, rng):
        begin(run, rng)
        pid = nodes_of(run).cluster.nodes[find(run, rng) - 1].pid
        assert pid is not None
        run.faulted = time.time()
        os.kill(pid, signal.SIGSTOP)
        try:
            run.go_on(_GOES_ON)
        finally:
            os.kill(pid, signal.SIGCONT)
        run.go_on()

    return strike


def rolling_restart(run, rng):
    """Each node in turn is stopped in good order and started again, as for an upgrade."""
    begin(run, rng)
    bench = nodes_of(run)
    run.faulted = time.time()
    for node in bench.cluster.nodes:
        node.stop()
        node.start()
        bench.mend()
        run.go_on()


def disk_is_lost(run, rng):
    """A node dies, and comes back with an empty disk."""
    begin(run, rng)
    bench = nodes_of(run)
    node = rng.choice(bench.cluster.nodes)
    run.faulted = time.time()
    node.kill()
    shutil.rmtree(node.folder.data)
    run.go_on()
    node.start()
    bench.mend()
    run.go_on()


def two_are_down(run, rng):
    """Two nodes die: nothing can be acknowledged, and there may be no controller, until one is back."""
    begin(run, rng)
    down = rng.sample(nodes_of(run).cluster.nodes, 2)
    run.faulted = time.time()
    for node in down:
        node.kill()
    time.sleep(_DOWN_SECONDS)
    for node in down:
        node.prepare()
        node.launch()  # neither answers before the other runs, where the third one had no controller
    for node in down:
        problem = node.await_answer()
        assert problem is None, problem
    run.go_on()
