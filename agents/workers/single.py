"""One worker process that is waited for: a model in a process of its own, for whoever measures it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway.agents.models.model_errors import ModelRaisedError
from spillway.agents.workers import frames
from spillway.agents.workers.forks import end_group
from spillway.agents.workers.links import LOAD_SECONDS, WorkerLostError
from spillway.agents.workers.processes import command_of, started
from spillway.agents.workers.shim import Stream
from spillway.lineage.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spillway.agents.models.inputs import Inputs
    from spillway.topology.spec import StageSpec


class SingleWorker:
    """A stage's model in a worker process."""

    def __init__(self, spec: StageSpec, torch_threads: int) -> None:
        """Start the process and wait for its model. Raises ModelError as loading it does."""
        self._place = f"stage {spec.name!r}: model {spec.model!r}"
        self._connection, self._process = started(command_of(spec, torch_threads))
        self._connection.settimeout(LOAD_SECONDS)
        self._stream = Stream(self._connection)
        hello = self._receive()
        if hello["kind"] == frames.FAILED:
            raise ModelError(str(hello.get("text")))
        self.version = str(hello.get("version", ""))
        self.input_signature = hello.get("signature")
        self.uses_torch = bool(hello.get("torch"))
        self._connection.settimeout(spec.workers.timeout)

    @property
    def pid(self) -> int:
        return self._process.pid

    def predict(self, batch: list[Inputs]) -> Sequence[Mapping[str, Any]]:
        """Run one batch. Raises ModelError for what the model raised, and where its process died."""
        queries = [
            {"inputs": dict(each), "parameters": each.parameters, "id": each.request_id, "key": each.key}
            for each in batch
        ]
        self._stream.send({"kind": frames.BATCH, "id": [b"", 0], "queries": queries, "singly": False})
        results = self._receive()["results"]
        failed = next((result for result in results if "error" in result), None)
        if failed is not None:
            raise ModelRaisedError(str(failed["error"]), str(failed.get("trace", "")))
        return [result["outputs"] for result in results]

    def close(self) -> None:
        self._connection.close()
        end_group(self._process.pid)
        self._process.wait()

    def _receive(self) -> dict[str, Any]:
        try:
            found: list[dict[str, Any]] = []
            while not found:
                found = self._stream.receive()
        except (EOFError, OSError, frames.FrameError) as error:
            self.close()
            raise WorkerLostError(f"{self._place}: its process died, or did not answer in time ({error})") from error
        return found[0]
