"""Variants of a model: each format, number of threads and kind of hardware is built, or listed with why it is not.

The axes are INFaaS' (section 3.2) as far as this machine has them: its batch sizes are not one of them here, as a
worker takes any batch and the profile says how large is enough.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from spillway.agents.models.adapters import skops_io
from spillway.agents.models.loading import is_torch_module
from spillway.lineage.errors import ModelError
from spillway.topology.variants.manifest import NotBuilt

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from spillway.agents.registry.validation import Validation

FORMATS: Final = ("eager", "bf16", "int8", "onnx", "onnx-int8")
HARDWARE: Final = ("cpu", "cuda")
_OF_ONNX: Final = ("MatMul", "Gemm")  # ONNX Runtime multiplies convolutions in int8 on few machines


@dataclass(frozen=True, slots=True)
class Built:
    """A variant's file, which is not in the repository yet, and what serves it is told."""

    key: str
    format: str
    threads: int
    device: str
    file: Path
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Generation:
    """All that was asked for: what could be built, and what not."""

    built: list[Built]
    left_out: list[NotBuilt]


def generate(
    model: Any, validation: Validation, folder: Path, *, threads: Sequence[int], hardware: Sequence[str]
) -> Generation:
    """Build the variants of a model into `folder`."""
    made = Generation([], [])
    networks = is_torch_module(model)
    for device in hardware:
        for kind in FORMATS:
            try:
                _check_hardware(device, kind, networks=networks)
                suffix = ".onnx" if kind.startswith("onnx") else ".pt2" if networks else ".skops"
                file = folder / f"{kind}{suffix}"
                if not file.exists():
                    _build(model, kind, validation, file, networks=networks)
                as_skops = kind == "eager" and not networks
                told = {"trust": skops_io().get_untrusted_types(file=file)} if as_skops else {}
            except ModelError as error:
                made.left_out.append(NotBuilt(format=kind, device=device, why=str(error)[:500]))
                continue
            except Exception as error:  # noqa: BLE001 - exporters raise what they like, and it is told
                first = str(error).strip().partition("\n")[0]
                why = f"{type(error).__name__}: {first}"[:500]
                made.left_out.append(NotBuilt(format=kind, device=device, why=why))
                continue
            for count in threads:
                why = _too_many(count, device)
                if why:
                    made.left_out.append(NotBuilt(format=kind, device=device, threads=count, why=why))
                else:
                    key = kind + (f"-t{count}" if count > 1 else "") + ("" if device == "cpu" else f"-{device}")
                    made.built.append(Built(key, kind, count, device, file, told))
    return made


def _too_many(threads: int, device: str) -> str:
    cores = os.cpu_count() or 1
    if device != "cpu":
        return "" if threads == 1 else "threads apply only to the CPU"
    return "" if threads <= cores else f"this host has {cores} cores"


def _check_hardware(device: str, kind: str, *, networks: bool) -> None:
    """Raise ModelError where this host has no such device, or the format does not run there."""
    if device == "cpu":
        return
    if kind.startswith("onnx"):
        import onnxruntime  # noqa: PLC0415 - only where it is asked for

        if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
            raise ModelError("this onnxruntime has no CUDA (onnxruntime-gpu has)")
        return
    if not networks:
        raise ModelError("scikit-learn runs on the CPU")
    import torch  # noqa: PLC0415 - the model has imported it

    if not torch.cuda.is_available():
        raise ModelError("this host has no CUDA device")
    if kind == "int8":
        raise ModelError("torch's int8 matrix product needs batches of 17 or more there")


def _build(model: Any, kind: str, validation: Validation, file: Path, *, networks: bool) -> None:
    """Write a variant to `file`. Raises ModelError that says why it cannot be."""
    if kind == "onnx-int8":
        _quantized(model, validation, file, networks=networks)
    elif networks:
        from spillway.agents.registry.programs import build  # noqa: PLC0415 - imports torch

        build(model, kind, validation.inputs, file)
    elif kind == "eager":
        skops_io().dump(model, file)
    elif kind == "onnx":
        _estimator_onnx(model, validation, file)
    else:
        raise ModelError("scikit-learn cannot change its precision")


def _estimator_onnx(model: Any, validation: Validation, file: Path) -> None:
    try:
        from skl2onnx import to_onnx  # noqa: PLC0415 - for registering alone
    except ModuleNotFoundError as error:
        raise ModelError("skl2onnx is not installed: pip install skl2onnx") from error
    first = np.asarray(next(iter(validation.inputs.values()))[:1], np.float32)
    file.write_bytes(to_onnx(model, first, options={"zipmap": False}).SerializeToString())


def _quantized(model: Any, validation: Validation, file: Path, *, networks: bool) -> None:
    try:
        import onnx  # noqa: PLC0415 - for registering alone
        from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ModelError(f"{error.name} is not installed: pip install onnx onnxruntime") from error
    plain = file.with_name("onnx.onnx")
    if not plain.exists():
        _build(model, "onnx", validation, plain, networks=networks)
    if not set(_OF_ONNX) & {node.op_type for node in onnx.load(str(plain)).graph.node}:
        raise ModelError("its ONNX graph has no matrix product that ONNX Runtime makes int8")
    before, handlers = logging.root.manager.disable, list(logging.root.handlers)
    logging.disable(logging.WARNING)  # it recommends its own preprocessing
    try:
        quantize_dynamic(str(plain), str(file), weight_type=QuantType.QInt8, op_types_to_quantize=list(_OF_ONNX))
    finally:
        logging.disable(before)
        logging.root.handlers[:] = handlers  # which its warning has made
