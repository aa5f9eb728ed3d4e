"""A model in a child process of its own: it cannot take the stage down, nor hold its interpreter's lock."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

from agents.models.loading import load_model
from agents.models.raised import ModelRaisedError, trace_of, words_of
from agents.models.torch_threads import limit_torch_threads
from lineage.errors import ModelError, SpillwayError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from multiprocessing.connection import Connection

    from agents.models.inputs import Inputs

log = logging.getLogger(__name__)

LOAD_SECONDS = 180.0  # as long as a stage's own process may take to start
_LOADED, _RESULTS, _RAISED = "loaded", "results", "raised"


class ModelCrashedError(ModelError):
    """The process that ran the model died; the batch that it ran is lost with it."""


class ModelNotLoadedError(ModelCrashedError):
    """The process died, or hung, while it loaded the model: no batch is to blame."""


class ChildModel:
    """Stands for a model that is loaded, and runs, in a spawned process; a dead one is replaced for the next batch."""

    def __init__(
        self,
        stage: str,
        name: str,
        arguments: Mapping[str, Any],
        *,
        device: str = "cpu",
        torch_threads: int = 1,
        timeout: float | None = None,
    ) -> None:
        """Start the process and wait until it has loaded the model. Raises ModelError as `load_model` does.

        `timeout`: seconds of a batch, after which the process is ended as if it had died; None: no end.
        """
        self._timeout = timeout
        self._job = (stage, name, dict(arguments), device, torch_threads)
        self._place = f"stage {stage!r}: model {name!r}"
        self.on_restart: Callable[[str], None] = log.error
        self.restarts = 0
        self._lock = threading.Lock()
        self._closed = False
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, *self._job), daemon=True, name="model")
        self._process.start()
        theirs.close()
        try:
            kind, content = self._load()
        except ModelCrashedError as error:
            raise ModelNotLoadedError(str(error)) from error
        if kind == _RAISED:
            self._process.join()
            raise ModelError(content)
        self.version, self.input_signature, self.uses_torch = content

    def _load(self) -> tuple[str, Any]:
        if not self._pipe.poll(LOAD_SECONDS):
            self._process.kill()
            raise ModelNotLoadedError(f"{self._place}: it was not loaded within {LOAD_SECONDS:g} s")
        return self._receive("loading")

    def _receive(self, doing: str) -> tuple[str, Any]:
        try:
            return self._pipe.recv()  # type: ignore[no-any-return]
        except (EOFError, OSError) as error:
            self._process.join(1.0)
            code = self._process.exitcode
            raise ModelCrashedError(f"{self._place}: its process died while {doing} (exit code {code})") from error

    def predict(self, batch: list[Inputs]) -> Sequence[Mapping[str, Any]]:
        with self._lock:
            if self._closed:
                raise ModelCrashedError(f"{self._place}: its process has been stopped")
            if not self._process.is_alive():
                self._start()  # the restart after a crash had failed; try again
            try:
                self._pipe.send(batch)
                self._await_answer(len(batch))
                kind, content = self._receive(f"it ran a batch of {len(batch)}")
            except (BrokenPipeError, ModelCrashedError) as error:
                self._restart(str(error))
                raise ModelCrashedError(str(error)) from error
        if kind == _RAISED:
            raise ModelRaisedError(*content)
        return content  # type: ignore[no-any-return]

    def _await_answer(self, size: int) -> None:
        if self._timeout is not None and not self._pipe.poll(self._timeout):
            self._process.kill()
            self._process.join()
            raise ModelCrashedError(
                f"{self._place}: it ran a batch of {size} for more than {self._timeout:g} s, its time-out "
                "('timeout' in the pipeline file), so its process was ended"
            )

    def _restart(self, why: str) -> None:
        self._pipe.close()
        self.restarts += 1
        self.on_restart(f"{why}; it is started again (restart {self.restarts})")
        try:
            self._start()
        except SpillwayError as error:
            self.on_restart(f"{error}; the next batch tries once more")

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._pipe.close()
        self._process.join(1.0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _serve(pipe: Connection, stage: str, name: str, arguments: dict[str, Any], device: str, torch_threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides; a terminal's Ctrl-C reaches both
    try:
        model = load_model(stage, name, arguments, device)
        limit_torch_threads(torch_threads)
    except SpillwayError as error:
        pipe.send((_RAISED, str(error)))
        return
    told = str(getattr(model, "version", "")), getattr(model, "input_signature", None), "torch" in sys.modules
    pipe.send((_LOADED, told))
    while True:
        try:
            batch = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            answer: tuple[str, Any] = (_RESULTS, model.predict(batch))
        except Exception as error:  # noqa: BLE001 - whatever the model raises is its answer
            answer = (_RAISED, (words_of(error), trace_of(error)))
        try:
            pipe.send(answer)
        except Exception as error:  # noqa: BLE001 - a result that cannot be pickled raises nearly anything
            pipe.send((_RAISED, (f"its result cannot leave its process: {words_of(error)}", trace_of(error))))
