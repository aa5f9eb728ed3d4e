"""A registered variant as a model of a stage. No pickle is ever loaded, and no other file than the registered one.

The file's name comes of a record: it is a hash, and so leads nowhere out of the repository. What is loaded are the very
bytes that were hashed, whatever becomes of the file meanwhile.

Its outputs are the same whatever made it: `label`, and `scores`, what the model says of each class, where it says so.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from spillway.agents.models.adapters import skops_io
from spillway.agents.models.inputs import taken
from spillway.agents.registry.archive import check_archive
from spillway.lineage.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spillway.agents.models.inputs import Inputs

Arrays = list[Any]  # one array an input


# What runs a file: labels, and the scores of each class or None, of inputs in their order.
Answers = Callable[[Arrays], tuple[NDArray[Any], NDArray[Any] | None]]


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
        data = read_registered(Path(repository), file)
        self.input_signature = {name: dict(each) for name, each in inputs.items()}
        self._dtypes = {name: np.dtype(each["dtype"]) for name, each in inputs.items()}
        self._run: Answers = _RUNNERS[Path(file).suffix](data, file, device, threads, trust)

    def predict(self, batch: list[Inputs]) -> list[dict[str, Any]]:
        names = taken(batch[0], list(self._dtypes))
        pairs = zip(names, self._dtypes.values(), strict=True)
        labels, scores = self._run([np.stack([np.asarray(q[name], dtype) for q in batch]) for name, dtype in pairs])
        told = [{"label": label} for label in labels.tolist()]
        if scores is not None:
            for one, row in zip(told, np.asarray(scores, np.float32), strict=True):
                one["scores"] = row
        return told


def read_registered(repository: Path, file: str) -> bytes:
    """Read a file, if it is the registered one: it is called by its hash. Raises ModelError."""
    if not _FILE.fullmatch(file):
        raise ModelError(f"{file!r:.120} is not a file of a registered variant (SHA-256 and {', '.join(_RUNNERS)})")
    path = repository / file
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(
            f"{path} cannot be read: {error.strerror}; if the repository is elsewhere on this host, set 'repository: "
            "FOLDER' in the stage's variants"
        ) from error
    if (found := hashlib.sha256(data).hexdigest()) != path.stem:
        raise ModelError(
            f"{path} is not the file that was registered: its SHA-256 is {found}; register the model again"
        )
    return data


def _program(data: bytes, file: str, device: str, threads: int, _trust: Sequence[str]) -> Answers:
    import torch  # noqa: PLC0415 - only where a program runs

    check_archive(io.BytesIO(data), file)
    program = torch.export.load(io.BytesIO(data))
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


def _onnx(data: bytes, _file: str, device: str, threads: int, _trust: Sequence[str]) -> Answers:
    import onnxruntime  # noqa: PLC0415 - as above

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # errors
    providers = ["CPUExecutionProvider" if device == "cpu" else "CUDAExecutionProvider"]
    session = onnxruntime.InferenceSession(data, options, providers=providers)
    names, outputs = [each.name for each in session.get_inputs()], [each.name for each in session.get_outputs()]

    def run(inputs: Arrays) -> tuple[NDArray[Any], NDArray[Any] | None]:
        made = session.run(outputs, dict(zip(names, inputs, strict=True)))
        if len(made) == 1:  # of a network
            return made[0].argmax(1), made[0]
        return made[0], made[1]  # of an estimator

    return run


def _estimator(data: bytes, file: str, _device: str, threads: int, trust: Sequence[str]) -> Answers:
    skops = skops_io()
    threadpoolctl: Any = importlib.import_module("threadpoolctl")  # comes with scikit-learn, and without types

    unknown = [each for each in skops.get_untrusted_types(data=data) if each not in trust]
    if unknown:
        raise ModelError(f"{file} has types that were not registered with it: {', '.join(unknown)}")
    model = skops.loads(data, trusted=list(trust))
    threadpoolctl.threadpool_limits(threads)
    scores: Callable[[Any], Any] | None = getattr(model, "predict_proba", None)

    def run(inputs: Arrays) -> tuple[NDArray[Any], NDArray[Any] | None]:
        if scores is None:
            return np.asarray(model.predict(inputs[0])), None
        made = scores(inputs[0])
        return np.asarray(model.classes_)[made.argmax(1)], made

    return run


_RUNNERS: Final[dict[str, Callable[[bytes, str, str, int, Sequence[str]], Answers]]] = {
    ".pt2": _program,
    ".onnx": _onnx,
    ".skops": _estimator,
}
_FILE: Final = re.compile(r"[0-9a-f]{64}\.(pt2|onnx|skops)")
