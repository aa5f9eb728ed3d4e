"""What the loss of one node of three costs, measured: `python -m tests.torture.node_losses [--repeats N] [ROLE ...]`.

A pipeline is served on three nodes under a steady load, and its nodes are lost one after the other: killed, or stopped
with their connections open, each for what it does at that moment. Every loss lasts until the pipeline has gone on
without the node for some seconds; then the node is back, and leads again what it led, before the next is lost. Two
times are taken of each loss: the longest without an outcome, and the longest that a query had to wait, counted from
when it was due to be sent. At the end of a round everything is held against the oracle, as in `make torture`.
"""

import argparse
import json
import os
import signal
import sys
import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory

from spillway.agents.broker import EmbeddedCluster
from spillway.agents.cli.options import cache_dir
from spillway.lineage import headers
from spillway.topology import topics
from tests.nodes import ClusterBench
from tests.torture.bench import Run
from tests.torture.node_faults import ROLES
from tests.torture.shapes import SHAPES
from tests.waiting import BROKER_SECONDS, until

KINDS = {"killed": signal.SIGKILL, "stands still": signal.SIGSTOP}
USUAL = ("any", "controller", "input", "outcomes", "versions", "beat", "gate-group", "transactions")
_WITHOUT_SECONDS = 6.0  # that a pipeline goes on without a node
_GOES_ON = 50  # outcomes, after which what has come late is through


@dataclass(frozen=True)
class Loss:
    kind: str
    role: str
    node: int
    at: float
    back: float  # when the node was there again
    gap: float = 0.0  # the longest time without an outcome, while the node was away
    wait: float = 0.0  # the longest from when a query was due, of those due meanwhile
    gap_back: float = 0.0  # the longest time without an outcome while it came back
    load: float = 0.0  # processes that wait for a processor, as the system says


def main(arguments):
    """Measure, print a table; 1 where the oracle found something wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("roles", nargs="*", default=USUAL, help=f"of {', '.join(ROLES)}; default: {', '.join(USUAL)}")
    parser.add_argument("--repeats", type=int, default=5, help="rounds: in each, every role is lost once in each way")
    parser.add_argument("--kinds", default=",".join(KINDS), help="how nodes are lost")
    parser.add_argument("--rate", type=float, default=100.0, help="queries a second")
    parser.add_argument("--shape", default="pair", choices=sorted(SHAPES), help="of the pipeline")
    parser.add_argument("--out", type=Path, default=Path("build/node-losses.jsonl"), help="where each loss is noted")
    said = parser.parse_args(arguments)
    plan = [(kind, role) for role in said.roles for kind in said.kinds.split(",")]
    found = []
    problems = []
    said.out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as made, _cluster((folder := Path(made)) / "nodes") as bench, said.out.open("w") as out:
        for number in range(said.repeats):
            losses, wrong = _round(bench, folder, number, plan, said)
            found += losses
            problems += wrong
            out.writelines(json.dumps(asdict(loss)) + "\n" for loss in losses)
            out.flush()
            print("\n".join(["", f"after {number + 1} rounds:", *lines(found)]), flush=True)
    print("\n".join(problems[:20]))
    return 1 if problems else 0


def lines(losses):
    """The table: a row for each way to lose a node and each role, and one for all roles."""
    rows = defaultdict(list)
    for loss in losses:
        rows[loss.kind, loss.role].append(loss)
        rows[loss.kind, "all of these"].append(loss)
    head = (
        "| a node that is | role | losses | longest time without an outcome | longest wait of a query | as it is back |"
    )
    return [head, "|---|---|---|---|---|---|"] + [
        f"| {kind} | {role} | {len(of)} | {_told([loss.gap for loss in of])} | {_told([loss.wait for loss in of])} "
        f"| {_told([loss.gap_back for loss in of])} |"
        for (kind, role), of in sorted(rows.items())
    ]


def _told(seconds):
    return f"{median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f})"


def _round(bench, folder, number, plan, said):
    name, rng = f"losses{number}", Random(number)
    place = folder / name
    place.mkdir()
    plan = rng.sample(plan, len(plan))
    bench.mend()
    run = Run(bench, name, SHAPES[said.shape], place)
    with run:
        run.load(rate=said.rate)
        run.answered(200)
        losses = [_lose(run, bench, rng, kind, role) for kind, role in plan]
        verdict = run.judged()
    run.forget()
    return losses, verdict.problems


def _lose(run, bench, rng, kind, role):
    run.go_on(_GOES_ON)
    number = ROLES[role](run, rng)
    node = bench.cluster.nodes[number - 1]
    load, at = os.getloadavg()[0], time.time()
    _strike(node, kind)
    try:
        until(lambda: time.time() - at > _WITHOUT_SECONDS, 60, "some seconds have passed")
        run.go_on(_GOES_ON, 120)
    finally:
        back = time.time()
        bench.mend()
    run.go_on(_GOES_ON)
    until(bench.nodes.settled, 60, "each node leads what it is to lead")
    loss = _costed(Loss(kind, role, number, at, back, load=load), run.recorder.recording, run.name)
    print(f"{kind}: {role}, node {number}: gap {loss.gap:.2f}, wait {loss.wait:.2f}, back {loss.gap_back:.2f}", end=" ")
    print(f"at {time.strftime('%H:%M:%S', time.gmtime(at))}{at % 1:.3f}"[:-4], f"load {load:.1f}", flush=True)
    return loss


def _strike(node, kind):
    if kind == "killed":
        node.kill()
    else:
        assert node.pid is not None
        os.kill(node.pid, KINDS[kind])


def _costed(loss, recording, name):
    egress = [record for record in recording.topics[topics.egress(name)] if record.at_ms / 1_000 > loss.at - 1]
    moments = sorted(record.at_ms / 1_000 for record in egress)
    due = [headers.decode(record.headers).sent_us / 1e6 for record in egress]
    waits = [record.at_ms / 1_000 - at for record, at in zip(egress, due, strict=True) if loss.at <= at < loss.back]
    return replace(
        loss,
        gap=_longest_gap(moments, loss.at, loss.back),
        gap_back=_longest_gap(moments, loss.back, moments[-1]),
        wait=max(waits),
    )


def _longest_gap(moments, since, till):
    inside = [since, *(moment for moment in moments if since < moment < till), till]
    return max(after - before for before, after in pairwise(inside))


@contextmanager
def _cluster(folder):
    with EmbeddedCluster(folder, nodes=3, cache_dir=cache_dir(), start_timeout=BROKER_SECONDS) as cluster:
        yield ClusterBench(cluster)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
