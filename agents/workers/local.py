"""A worker that shares the front's interpreter and packages: `python -m spillway.agents.workers.local FD JOB`.

Spawned by a front, never forked; it loads the stage's model as a thread of the stage would.
"""

from __future__ import annotations

import json
import socket
import sys
from typing import Any

from spillway.agents.models.inputs import Inputs
from spillway.agents.models.loading import limit_torch_threads, load_model
from spillway.agents.models.model_errors import words_of
from spillway.agents.workers import shim


def load(job: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The stage's model, and what Hello says of it. Raises ModelError as `load_model` does."""
    sys.path += [entry for entry in job["path"] if entry not in sys.path]  # the pipeline file's folder, too
    model = load_model(job["stage"], job["model"], job["arguments"], job["device"])
    limit_torch_threads(job["torch_threads"])
    return model, shim.told_of(job, model) | {"torch": "torch" in sys.modules}


def main(descriptor: int, job: dict[str, Any]) -> None:
    shim.begin()
    shim.serve(socket.socket(fileno=descriptor), lambda: load(job), Inputs, words_of)


if __name__ == "__main__":
    main(int(sys.argv[1]), json.loads(sys.argv[2]))
