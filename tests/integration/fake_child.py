"""A supervised process for tests: registers as a real one does, then does what its mode says.

    python fake_child.py RUN_DIR STAGE REPLICA ROLE MODE

Modes: good (ends on SIGTERM), deaf (ignores SIGTERM), crash (ready, then code 1), broken (code 1 before it is ready),
misused (code 2), fenced (ready, then code 3), slow-start (is never ready), standby
(waits for `take R` on its stdin, then is replica R). Whoever started it may take it for `good` once a file named
`<stage>.well` stands in RUN_DIR, and a standby for `broken` once `<stage>.ill` does.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

ENDS = {"crash": ("error: it happened again", 1), "fenced": ("spillway: fake/gate.0: it was fenced", 3)}


def write(path, entry):
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}.partial")
    draft.write_text(json.dumps(entry))
    draft.replace(path)


def never_ready(mode):
    if mode == "slow-start":
        print("spillway: stage 'a': model 'm:M': it is being imported and constructed", file=sys.stderr, flush=True)
        time.sleep(3600)
    if mode == "misused":
        print("error: this is no pipeline", file=sys.stderr)
        sys.exit(2)


def main():
    given = [each for each in sys.argv if each != "--cautious"]
    run_dir, stage, replica, role, mode = Path(given[1]), *given[2:6]
    if given != sys.argv:
        (run_dir / f"{stage}.cautious").touch()
    if (run_dir / f"{stage}.well").exists():
        mode = "good"
    if mode == "broken" or (mode == "standby" and (run_dir / f"{stage}.ill").exists()):
        sys.exit("error: the model is not there")
    never_ready(mode)
    if mode == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    stopping = []
    if mode != "deaf":
        signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    label = sys.argv[7].removeprefix("fake.").partition("@")[0] if "--member-name" in sys.argv else ""
    if mode == "standby":
        label = f"{stage}.standby{replica}"
    entry = {
        "pipeline": "fake", "stage": stage, "replica": int(replica), "pid": os.getpid(), "port": 1,
        "started_unix": time.time(), "role": role, "ready": True, "label": label,
    }  # fmt: skip
    path = run_dir / "fake" / f"{label or f'{stage}.{replica}'}.json"
    write(path, entry)
    if mode == "standby":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        word = sys.stdin.readline().split()
        signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
        path.unlink()
        if not word:
            sys.exit("error: nobody told me anything")
        replica = word[1]
        write(
            run_dir / "fake" / f"{stage}.{replica}.json",
            entry | {"replica": int(replica), "role": "stage", "label": ""},
        )
    if mode in ENDS:
        text, code = ENDS[mode]
        print(text, file=sys.stderr)
        sys.exit(code)
    while not stopping:
        time.sleep(0.02)
    with (run_dir / "ends").open("a") as ends:
        ends.write(f"{stage}\n")


main()
