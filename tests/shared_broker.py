"""One Kafka for a whole test run, however many workers it has: the first that asks starts it.

It is kept by a process of its own, `python -m tests.shared_broker FOLDER PID`, which ends with the run's first process,
even a killed one, and takes Kafka along.
"""

import subprocess
import sys
import time
from pathlib import Path

import psutil

from spillway.agents.broker import EmbeddedBroker
from spillway.agents.broker.jars import alone
from spillway.agents.cli.options import cache_dir
from tests.waiting import BROKER_SECONDS, until

_PAUSE_SECONDS = 0.2


def shared_broker(folder: Path, run: int) -> str:
    """Return the address of the Kafka in `folder`, started where no worker has asked before; process `run` keeps it."""
    address = folder / "address"
    with alone(folder, "lock"):
        if not address.exists():
            with (folder / "keeper.log").open("ab") as log:
                keeper = subprocess.Popen(
                    [sys.executable, "-m", "tests.shared_broker", folder, str(run)],
                    cwd=Path(__file__).parents[1], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    start_new_session=True,  # Ctrl-C is for the run, which it outlives by a moment
                )  # fmt: skip
            until(lambda: address.exists() or keeper.poll() is not None, BROKER_SECONDS, "Kafka answers")
            if keeper.poll() is not None:
                raise RuntimeError(f"Kafka did not start: {(folder / 'keeper.log').read_text()}")
        return address.read_text()


def main(folder: Path, run: int) -> None:
    kept_for = psutil.Process(run)
    with EmbeddedBroker(folder / "kafka", cache_dir=cache_dir(), start_timeout=BROKER_SECONDS) as broker:
        draft = folder / "draft"
        draft.write_text(broker.bootstrap)
        draft.rename(folder / "address")
        while kept_for.is_running() and kept_for.status() != psutil.STATUS_ZOMBIE:
            time.sleep(_PAUSE_SECONDS)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
