"""What it takes to hide OL(V)'s versions on the paper's machines: computed from costs measured here, never measured.

HAMS' OL(V) (sections VI-A and VI-B): a state of 548 MB, which every batch changes as a whole; a batch every 292 ms;
hosts with a network of 40 Gbps. That the state takes 134.52 ms from the GPU to the host is the paper's own measurement.
Each step of a version has to be through within the time of a batch, beside the other steps. A step on the CPU is one
thread's in our code; the paper's hosts have 20 cores each.
"""

from __future__ import annotations

from agents.bench.pard.output import Table

STATE_MB, BATCH_MS = 548.05, 292.47
RETRIEVED_MS = 134.52
NETWORK_MB_S = 40_000 / 8  # at line rate
_STEPS = (
    ("hash, in the writer's thread", "hash_cpu_ms"),
    ("hash and send, all of the primary's process", "write_cpu_ms"),
    ("take and write, the broker's process", "broker_cpu_ms"),
)


def computed_table(costs: dict[str, float]) -> Table:
    scale = STATE_MB / costs["state_mb"]
    here = f"for {costs['state_mb']:.0f} MB here"
    sent = 1e3 * STATE_MB / NETWORK_MB_S
    rows = [
        ["from the GPU to the host", "the paper's measurement", f"{RETRIEVED_MS:.0f} ms", "-"],
        ["over the network, once", "40 Gbps at line rate", f"{sent:.0f} ms", "-"],
    ]
    for name, step in _STEPS:
        took = costs[step] * scale
        rows.append([name, f"{costs[step]:.0f} ms of CPU {here}", f"{took:.0f} ms", f"{took / BATCH_MS:.1f}"])
    slowest = max(RETRIEVED_MS, sent, *(costs[step] * scale for _, step in _STEPS))
    batches = -int(-slowest // BATCH_MS)
    rate = 1e3 * STATE_MB / BATCH_MS
    return Table(
        "The paper's OL(V), 548 MB every 292 ms: COMPUTED from the CPU costs above, not measured",
        ("step of a version", "from", "for 548 MB", "cores to be through in a batch's time"),
        rows,
        (
            f"With such a core for each step, the slowest takes {slowest:.0f} ms: a version covers {batches} batches.",
            "Batches would still wait for the copy alone, which is shorter than a batch.",
            f"Replies would wait at the gate for up to two versions, {2 * batches * BATCH_MS / 1e3:.1f} s.",
            f"The log's disk has to take {rate:,.0f} MB/s for a version a batch, {rate / batches:,.0f} MB/s for those.",
        ),
    )
