"""A writer that is killed at any of its steps leaves a log in which every manifest is of a whole version."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spillway.checkpoint.assembly import assemble
from spillway.checkpoint.chunks import decode_key
from spillway.checkpoint.manifests import open_contents
from spillway.lineage.values.replication import ReplicationDecoder

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import sys, time
import numpy as np
from spillway.agents.live.states.worker import Mailbox
from spillway.agents.live.states.state_writer import StateWriter
from spillway.checkpoint.capture import Capture
from spillway.checkpoint.retention import Retention
from spillway.lineage.marks import INITIAL, Version
from spillway.lineage.replication import Manifest
from spillway.producers.connection import ClientSettings
from tests.crash_points import arm

bootstrap, pipeline, point = sys.argv[1:]
arm(point)
mailbox, complete, failures = Mailbox(), [], []
writer = StateWriter(
    ClientSettings(bootstrap=bootstrap), pipeline, ("learn", 0), 1, mailbox.post, complete.append, failures.append,
    retention=Retention(),
)
capture = Capture(chunk_bytes=1_024, own_bytes=1_024)
for n in range(1, 4):
    writer.outputs_acked(Version(1, n))
    manifest = Manifest(Version(1, n), ((1, INITIAL),), (), "m")
    writer.write(capture.take({"w": np.arange(20_000) + n * 100_000}), manifest)
    until = time.monotonic() + 30
    while len(complete) < n and not failures and time.monotonic() < until:
        mailbox.deliver()
        time.sleep(0.001)
    print("complete", n, flush=True)
writer.close()
"""
MANIFESTS = {  # how many may stand when the process ends at a point for the second time (amid chunks: in the second)
    "before-chunks:2": {1},
    "amid-chunks:250": {1},
    "after-chunks:2": {1},
    "before-manifest:2": {1},
    "after-manifest:2": {1, 2},
    "before-ack:2": {2},
    "after-ack:2": {2},
}


# Between these points and those that stay lies no record.
NIGHTLY = ("before-chunks:2", "after-chunks:2", "after-ack:2")


@pytest.mark.parametrize(
    "point", [pytest.param(each, marks=pytest.mark.nightly if each in NIGHTLY else ()) for each in (*MANIFESTS, "")]
)
def test_every_manifest_is_of_a_whole_version(bench, point):
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, bench.settings.bootstrap, bench.pipeline, point],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    told = ended.stdout.count("complete")
    assert ended.returncode == (-signal.SIGKILL if point else 0), ended.stderr
    chunks = {decode_key(key): value for key, value in bench.records("state")}
    manifests = [ReplicationDecoder().manifest(value) for _, value in bench.records("versions")]
    assert len(manifests) in MANIFESTS.get(point, {3})
    assert told <= len(manifests)  # what was told to be complete is in the log
    for n, manifest in enumerate(manifests, 1):
        state, _ = assemble(open_contents(manifest, chunks.get), chunks.get)
        assert state["w"].tolist() == list(range(n * 100_000, n * 100_000 + 20_000))
