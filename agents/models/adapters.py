"""Models that are files, `sklearn:FILE` and `onnx:FILE` (torch's: `spillway.agents.models.torch_module`), or functions.

Each stacks a batch's inputs to one array a name, calls the model once, and splits what comes of it: one mapping for
each query. What a file needs is imported when one is loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from spillway.agents.models.contract import text_of
from spillway.agents.models.inputs import Inputs, check_count, taken
from spillway.lineage.errors import MissingExtraError, ModelError, lacking
from spillway.lineage.values.tensors import DTYPE_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


_LONGEST_PATH: Final = 1_024  # what is longer names no file
_IMPORTS_TORCH: Final = "sklearn.externals.array_api_compat.torch"
_OF_ONNX: Final = {"float": "float32", "double": "float64"}  # other types have numpy's names


def find_file(name: str, folders: Iterable[str | Path]) -> Path | None:
    """The file that a model's reference names: in the working directory, else in the first folder that has one."""
    return next((path for path in (Path(name), *(Path(folder) / name for folder in folders)) if path.is_file()), None)


def load_file(place: str, kind: str, name: str, arguments: Mapping[str, Any], device: str) -> Any:
    """The model in a file, which is found in the working directory, then beside the pipeline file, as modules are.

    Raises ModelError that begins with `place`, and MissingExtraError where a package is not installed.
    """
    try:
        return _LOADERS[kind](look_up_file(name), device, **arguments)
    except ModelError as error:
        raise ModelError(f"{place}: {error}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if isinstance(error, ModuleNotFoundError) and (told := lacking(error)) is not None:
            raise MissingExtraError(f"{place}: {told}") from error
        first = text_of(error).partition("\n")[0]
        raise ModelError(f"{place}: {name} cannot be loaded: {type(error).__name__}: {first}") from error


def look_up_file(name: str) -> Path:
    file = find_file(name, sys.path)
    if file is None:
        raise ModelError(f"there is no file {name!r} in {Path.cwd()} or beside the pipeline file")
    return file


def placed(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A model's arguments; a file that one of them names is found as modules are.

    That is in the working directory, where the argument stays as it is, then beside the pipeline file.
    """
    return {name: _placed(value) for name, value in arguments.items()}


def _placed(value: Any) -> Any:
    found = named_file(value, sys.path)
    return value if found is None or found == Path(value) else str(found)


def named_file(value: Any, folders: Iterable[str | Path]) -> Path | None:
    """The file that an argument of a model names, if it is a text that names one."""
    is_name = isinstance(value, str) and 0 < len(value) < _LONGEST_PATH and "\0" not in value
    return find_file(value, folders) if is_name else None


def _stacked(batch: Sequence[Inputs], name: str, dtype: str | None = None) -> np.ndarray[Any, Any]:
    try:
        array = np.stack([np.asarray(query[name]) for query in batch])
        return array if dtype is None else array.astype(dtype, casting="same_kind", copy=False)
    except KeyError:
        raise ValueError(f"a query of the batch has no input {name!r}") from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"input {name!r}: {error}") from error


class SklearnModel:
    """An estimator of scikit-learn: a label, and probabilities in the order of `classes_`; of a regressor its value."""

    deterministic = True

    def __init__(self, file: Path, device: str, trust: bool | Sequence[str] = False) -> None:  # noqa: FBT001, FBT002 - an argument in a pipeline file
        """`trust`: types that skops may construct beside its own; True: all, and pickles may be loaded at all."""
        from sklearn.base import is_regressor  # noqa: PLC0415

        if device != "cpu":
            raise ModelError(f"scikit-learn runs on the CPU; drop 'device: {device}'")
        self._model = _estimator(file, trust)
        if not callable(getattr(self._model, "predict", None)):
            raise ModelError(
                f"{file.name} holds an object of {type(self._model).__name__}, which has no method predict"
            )
        self._output = "value" if is_regressor(self._model) else "label"
        features = getattr(self._model, "n_features_in_", None)
        if features is not None:
            self.example = lambda: {"x": np.zeros(features, np.float32)}

    def predict(self, batch: list[Inputs]) -> list[dict[str, Any]]:
        x = _stacked(batch, taken(batch[0], ("x",))[0])
        results = [{self._output: each} for each in np.asarray(self._model.predict(x)).tolist()]
        if hasattr(self._model, "predict_proba"):
            made = self._model.predict_proba(x)  # a list of arrays where there are several outputs
            rows = zip(*made, strict=True) if isinstance(made, list) else made
            for result, row in zip(results, rows, strict=True):
                result["probabilities"] = [each.tolist() for each in row]
        return results


def _estimator(file: Path, trust: bool | Sequence[str]) -> Any:  # noqa: FBT001 - as above
    if file.suffix != ".skops":
        if trust is not True:
            raise ModelError(
                f"{file.name} is a pickle, and loading one runs whatever code it holds; if you trust its author, "
                "write 'arguments: {trust: true}', or save the model with skops.io.dump as a .skops file"
            )
        import joblib  # noqa: PLC0415

        return joblib.load(file)
    io = skops_io()
    unknown = io.get_untrusted_types(file=file)
    named = [trust] if isinstance(trust, str) else list(trust or ()) if trust is not True else unknown
    left = [each for each in unknown if each not in named]
    if left:
        raise ModelError(
            f"{file.name} has types that skops does not trust; if you trust its author, list them: 'arguments: "
            f"{{trust: [{', '.join(left)}]}}'"
        )
    return io.load(file, trusted=unknown)


def skops_io() -> Any:
    """The module `skops.io`, imported without torch.

    It has scikit-learn list its estimators, which imports every package in there, and one of these imports torch where
    that is installed. What cannot be imported is passed over.
    """
    modules: dict[str, Any] = sys.modules
    modules.setdefault(_IMPORTS_TORCH, None)
    try:
        from skops import io  # noqa: PLC0415
    finally:
        if modules[_IMPORTS_TORCH] is None:
            del modules[_IMPORTS_TORCH]
    return io


class OnnxModel:
    """A session of ONNX Runtime with one thread; inputs and outputs have the names that the file gives them."""

    deterministic = True

    def __init__(self, file: Path, device: str) -> None:
        import onnxruntime  # noqa: PLC0415

        provider, options = "CPUExecutionProvider", onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # a stage uses more cores by workers
        told: dict[str, Any] = {}
        if device != "cpu":
            provider, told = "CUDAExecutionProvider", {"device_id": int(device.partition(":")[2] or 0)}
        if provider not in onnxruntime.get_available_providers():
            raise ModelError(f"this onnxruntime has no CUDA; install onnxruntime-gpu, or drop 'device: {device}'")
        self._session = onnxruntime.InferenceSession(str(file), options, providers=[(provider, told)])
        if self._session.get_providers()[0] != provider:
            raise ModelError(f"onnxruntime cannot use {device}; its log says why")
        inputs = self._session.get_inputs()
        self._dtypes = {one.name: _onnx_dtype(one.type) for one in inputs}
        self._fixed = next((one.shape[0] for one in inputs if one.shape and isinstance(one.shape[0], int)), None)
        self._outputs = [one.name for one in self._session.get_outputs()]
        self.input_signature = {  # of text, which is no tensor on the wire, the name alone
            name: {"dtype": dtype, "shape": one.shape[1:] if dtype and one.shape else None}
            for one, (name, dtype) in zip(inputs, self._dtypes.items(), strict=True)
        }

    def predict(self, batch: list[Inputs]) -> list[dict[str, Any]]:
        check_count(self._fixed, len(batch))
        names = taken(batch[0], list(self._dtypes))
        pairs = zip(names, self._dtypes.items(), strict=True)
        made = self._session.run(self._outputs, {own: _stacked(batch, name, dtype) for name, (own, dtype) in pairs})
        for name, column in zip(self._outputs, made, strict=True):
            if np.ndim(column) == 0 or len(column) != len(batch):
                raise ValueError(f"output {name!r} must have one row for each of the {len(batch)} queries")
        columns = {name: map(_row, column) for name, column in zip(self._outputs, made, strict=True)}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _onnx_dtype(told: str) -> str | None:
    inner = told.removeprefix("tensor(").removesuffix(")")
    dtype = _OF_ONNX.get(inner, inner)
    return dtype if dtype in DTYPE_NAMES else None


def _row(value: Any) -> Any:
    """A value of an output; skl2onnx gives probabilities as maps whose keys may be numbers."""
    return {str(key): each for key, each in value.items()} if isinstance(value, dict) else value


class FunctionModel:
    """A plain function of a batch, a list of `Inputs`, that returns a result for each: a mapping, or what is `y`.

    It counts as deterministic only where it has an attribute `deterministic = True`.
    """

    def __init__(self, function: Callable[[list[Inputs]], Any], written: Any) -> None:
        """`written` is the function as its author wrote it, for what it says of itself."""
        self._function = function
        self.deterministic = getattr(written, "deterministic", False)
        self.version = str(getattr(written, "version", ""))
        self.input_signature = getattr(written, "input_signature", None)
        self.example = getattr(written, "example", None)

    def predict(self, batch: list[Inputs]) -> Any:
        results = self._function(batch)
        if not isinstance(results, list | tuple | np.ndarray):
            return results  # the stage says that this is no list
        return [each if isinstance(each, Mapping) else {"y": each} for each in results]


def _torch_file(file: Path, device: str) -> Any:
    from spillway.agents.models.torch_module import TorchFile  # noqa: PLC0415 - imports torch

    return TorchFile(file, device)


_LOADERS: Final[Mapping[str, Callable[..., Any]]] = {
    "sklearn": SklearnModel,
    "onnx": OnnxModel,
    "torchscript": _torch_file,
}
