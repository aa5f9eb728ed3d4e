"""A supervised process for tests: registers as a real one does, then does what its mode says.

    python fake_child.py RUN_DIR STAGE REPLICA ROLE MODE [PARENT]

Modes: good (ends on SIGTERM), deaf (ignores SIGTERM), crash (ready, then code 1), broken (code 1 before it is ready),
misused (code 2), slow-drain (takes a while to end). Whoever started it may take it for `good` once a file named
`<stage>.well` stands in RUN_DIR.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path


def main():
    run_dir, stage, replica, role, mode = Path(sys.argv[1]), *sys.argv[2:6]
    if len(sys.argv) > 6:
        from agents.supervise.parent import follow_parent

        follow_parent(int(sys.argv[6]))
    if (run_dir / f"{stage}.well").exists():
        mode = "good"
    if mode == "broken":
        sys.exit("error: the model is not there")
    if mode == "misused":
        print("error: this is no pipeline", file=sys.stderr)
        sys.exit(2)
    if mode == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    stopping = []
    if mode != "deaf":
        signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    entry = {
        "pipeline": "fake", "stage": stage, "replica": int(replica), "pid": os.getpid(), "port": 1,
        "started_unix": time.time(), "role": role, "ready": True,
    }  # fmt: skip
    path = run_dir / "fake" / f"{stage}.{replica}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}.partial")
    draft.write_text(json.dumps(entry))
    draft.replace(path)
    if mode == "crash":
        sys.exit("error: it happened again")
    while not stopping:
        time.sleep(0.02)
    with (run_dir / "ends").open("a") as ends:
        ends.write(f"{stage}\n")


main()
