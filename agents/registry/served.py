"""A registered variant as a model of a stage. No pickle is ever loaded, and no other file than the registered one.

Its outputs are the same whatever made it: `label`, and `scores`, what the model says of each class, where it says so.
"""

from __future__ import annotations

import hashlib
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from agents.models.adapters import skops_io
from agents.models.inputs import taken
from agents.registry.archive import check_archive
from lineage.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from agents.models.inputs import Inputs

Arrays = list[Any]  # one array an input


class Answers(Protocol):
    """What runs a file: labels, and the scores of each class or None, of inputs in their order."""

    def __call__(self, inputs: Arrays, /) -> tuple[NDArray[Any], NDArray[Any] | None]: ...


class Registered:
    """One variant from the repository."""

    deterministic = True

    def __init__(
        self,
        repository: str,
        file: str,
        inputs: Mapping[str, Any],
        device: str = "cpu",
        threads: int = 1,
        trust: Sequence[str] = (),
    ) -> None:
        """`trust`: the types that an estimator's file may have. Raises ModelError for another file."""
        path = checked(Path(repository) / file)
        self.input_signature = {name: dict(each) for name, each in inputs.items()}
        self._dtypes = {name: np.dtype(each["dtype"]) for name, each in inputs.items()}
        self._run: Answers = _RUNNERS[path.suffix](path, device, threads, trust)

    def predict(self, batch: list[Inputs]) -> list[dict[str, Any]]:
        names = taken(batch[0], list(self._dtypes))
        pairs = zip(names, self._dtypes.values(), strict=True)
        labels, scores = self._run([np.stack([np.asarray(q[name], dtype) for q in batch]) for name, dtype in pairs])
        told = [{"label": label} for label in labels.tolist()]
        if scores is not None:
            for one, row in zip(told, np.asarray(scores, np.float32), strict=True):
                one["scores"] = row
        return told


def checked(path: Path) -> Path:
    """The file, if it is the registered one: it is called by its hash. Raises ModelError."""
    if path.suffix not in _RUNNERS:
        raise ModelError(f"{path.name} is not a file of a registered variant ({', '.join(_RUNNERS)})")
    try:
        with path.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise ModelError(
            f"{path} cannot be read: {error.strerror}; if the repository is elsewhere on this host, set 'repository: "
            "FOLDER' in the stage's variants"
        ) from error
    if found != path.stem:
        raise ModelError(f"{path} is not the file that was registered: its SHA-256 is {found}")
    return path


def _program(path: Path, device: str, threads: int, _trust: Sequence[str]) -> Answers:
    import torch  # noqa: PLC0415 - only where a program runs

    check_archive(path)
    program = torch.export.load(path)
    if device != "cpu":
        from torch.export.passes import move_to_device_pass  # noqa: PLC0415 - a second's import

        program = move_to_device_pass(program, device)
    module = program.module()
    left = [threads]  # whoever loads a model sets torch's threads afterwards, so they are set by the first batch

    @torch.inference_mode()
    def run(inputs: Arrays) -> tuple[NDArray[Any], NDArray[Any] | None]:
        if left:
            torch.set_num_threads(left.pop())
        scores = module(*(torch.from_numpy(each).to(device) for each in inputs)).cpu().numpy()
        return scores.argmax(1), scores

    return run


def _onnx(path: Path, device: str, threads: int, _trust: Sequence[str]) -> Answers:
    import onnxruntime  # noqa: PLC0415 - as above

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # errors
    providers = ["CPUExecutionProvider" if device == "cpu" else "CUDAExecutionProvider"]
    session = onnxruntime.InferenceSession(str(path), options, providers=providers)
    names, outputs = [each.name for each in session.get_inputs()], [each.name for each in session.get_outputs()]

    def run(inputs: Arrays) -> tuple[NDArray[Any], NDArray[Any] | None]:
        made = session.run(outputs, dict(zip(names, inputs, strict=True)))
        if len(made) == 1:  # of a network
            return made[0].argmax(1), made[0]
        return made[0], made[1]  # of an estimator

    return run


def _estimator(path: Path, _device: str, threads: int, trust: Sequence[str]) -> Answers:
    io = skops_io()
    threadpoolctl: Any = importlib.import_module("threadpoolctl")  # comes with scikit-learn, and without types

    unknown = [each for each in io.get_untrusted_types(file=path) if each not in trust]
    if unknown:
        raise ModelError(f"{path.name} has types that were not registered with it: {', '.join(unknown)}")
    model = io.load(path, trusted=list(trust))
    threadpoolctl.threadpool_limits(threads)
    scores: Callable[[Any], Any] | None = getattr(model, "predict_proba", None)

    def run(inputs: Arrays) -> tuple[NDArray[Any], NDArray[Any] | None]:
        if scores is None:
            return np.asarray(model.predict(inputs[0])), None
        made = scores(inputs[0])
        return np.asarray(model.classes_)[made.argmax(1)], made

    return run


_RUNNERS: Final[dict[str, Callable[[Path, str, int, Sequence[str]], Answers]]] = {
    ".pt2": _program,
    ".onnx": _onnx,
    ".skops": _estimator,
}
