"""Under what conditions a stage's model would be measured now, and which profiles were measured under others.

Nothing of the model is imported, nor is torch: its file, or its module's, is hashed, the device is asked of the system,
and torch's release of what is installed. So a `check` stays fast.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spillway.agents.models.adapters import named_file
from spillway.agents.models.loading import TORCH_THREADS
from spillway.agents.workers.identity import source_of
from spillway.lineage.errors import SpecError
from spillway.topology.profiles import Conditions
from spillway.topology.sizing import profile_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spillway.topology.load import Pipeline
    from spillway.topology.spec import StageSpec

_WHOLE: Final = 64 << 20  # bytes of a file of weights that are hashed whole; of a larger one, its ends and its size
_GPUS: Final = Path("/proc/driver/nvidia/gpus")
_CPU: Final = Path("/proc/cpuinfo")


def conditions_now(spec: StageSpec, folder: Path, *, torch: bool) -> Conditions:
    """The conditions under which the stage's model runs in this place; `torch`: whether the model uses it.

    `folder` is the pipeline file's: models and weights are found in the working directory, then there.
    """
    if spec.model is None:
        raise SpecError(f"stage {spec.name!r} is emulated: its durations are its profile")
    return Conditions(
        model=spec.model,
        source=_source(spec.model, [*sys.path, str(Path.cwd()), str(folder.absolute())]),
        arguments=_hash(json.dumps(spec.arguments, sort_keys=True, default=repr).encode()),
        weights=_weights(spec.arguments, folder),
        version=spec.version,
        where=spec.workers.where,
        device=spec.workers.device,
        device_name=device_name(spec.workers.device),
        torch=_release("torch") if torch else None,
        threads=TORCH_THREADS,
    )


def stale_profiles(pipeline: Pipeline) -> Iterator[str]:
    """Say of each profile that was measured under other conditions what has changed, and how to renew it."""
    for stage in pipeline.written.stages:
        profile = pipeline.profiles.get(stage.name)
        if profile is None:
            continue
        now = conditions_now(stage, pipeline.path.parent, torch=profile.measured.torch is not None)
        why = profile.measured.stale(now)
        if why is not None:
            file = profile_file(pipeline.written, stage)
            yield (
                f"the profile of stage {stage.name!r} in {file} is stale: {why}; renew it with 'spillway plan profile "
                f"{pipeline.path} --stage {stage.name}'"
            )


def device_name(device: str) -> str | None:
    """What the system calls the device; None where it has none such."""
    if device == "cpu":
        return _field(_CPU, "model name") or platform.processor() or platform.machine()
    gpus = [_field(gpu / "information", "Model") for gpu in sorted(_GPUS.glob("*"))]
    index = int(device.partition(":")[2] or 0)
    return gpus[index] if index < len(gpus) else None


def _field(file: Path, name: str) -> str | None:
    try:
        lines = file.read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    pairs = (line.partition(":") for line in lines)
    return next((value.strip() for key, _, value in pairs if key.strip() == name), None)


def _release(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _source(model: str, path: list[str]) -> str | None:
    """Hash of a model's file, or of its module's, found as an import would find it; None where there is none."""
    found = source_of(model, path)
    return None if found is None else f"sha256:{_file_hash(found[1])[:32]}"


def _weights(arguments: dict[str, Any], folder: Path) -> str | None:
    digests = []
    for name, value in sorted(arguments.items()):
        file = named_file(value, [folder])
        if file is not None:
            digests.append(f"{name} {_file_hash(file)}")
    return _hash("\n".join(digests).encode()) if digests else None


def _file_hash(file: Path) -> str:
    size = file.stat().st_size
    with file.open("rb") as stream:
        if size <= _WHOLE:
            return hashlib.file_digest(stream, "sha256").hexdigest()
        head = stream.read(_WHOLE // 2)
        stream.seek(size - _WHOLE // 2)
        return hashlib.sha256(head + stream.read() + str(size).encode()).hexdigest()


def _hash(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()[:32]}"
