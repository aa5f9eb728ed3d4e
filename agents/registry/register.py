"""Registering a model: its variants are generated and measured, their files stored, and a manifest written (INFaaS, 3).

A version counts from the moment that its manifest is in the table, and not before; files that nobody names do no harm.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter, ValidationError

from spillway.agents.live.sizes import writer
from spillway.agents.live.topics import ensure
from spillway.agents.models.inputs import Inputs
from spillway.agents.models.loading import is_torch_module
from spillway.agents.profiling.conditions import conditions_now
from spillway.agents.profiling.process import Effort, Memory, measure
from spillway.agents.registry.generator import HARDWARE, generate
from spillway.agents.registry.served import read_registered
from spillway.agents.registry.validation import read_model, read_validation
from spillway.agents.workers.single import SingleWorker
from spillway.lineage.errors import BrokerError, ModelError, UsageError
from spillway.producers.models import Models, put
from spillway.topology.profiles import StageProfile
from spillway.topology.sections import WorkersSpec
from spillway.topology.spec import StageSpec
from spillway.topology.topics import models_topic
from spillway.topology.variant_sections import Text
from spillway.topology.variants.manifest import (
    SERVED,
    Generated,
    Manifest,
    NotBuilt,
    model_name,
    newest,
    served_arguments,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spillway.agents.registry.generator import Built
    from spillway.agents.registry.validation import Validation
    from spillway.producers.connection import ClientSettings

SIZES: Final = (1, 2, 4, 8, 16, 32, 64)
_TEXT: Final = TypeAdapter[str](Text)  # of a manifest
QUICK: Final = Effort(warm_up=2, runs=20, least=3, seconds=1.0)


def register_model(
    settings: ClientSettings,
    name: str,
    model: str,
    *,
    app: str,
    validation: str,
    repository: Path | str = ".spillway/models",
    threads: Sequence[int] = (1,),
    hardware: Sequence[str] = HARDWARE,
    sizes: Sequence[int] = SIZES,
    say: Callable[[str], object] = bool,
) -> Manifest:
    """Register a model under a name: as version 1, or the one after the newest (INFaaS, Table 4: register_model).

    `model` is a `module:callable` that makes a trained torch module or classifier of scikit-learn, `validation` one
    that makes (inputs, labels), or an .npz. `threads` and `hardware` are what variants are generated for, `sizes` the
    batches that are measured. `say` hears of each variant. Raises ModelError where no variant can be built, UsageError
    for a model or set that is none, BrokerError.
    """
    check_hardware(hardware)
    try:
        model_name(name)
    except ValueError as error:
        raise UsageError(f"the model's name: {error}") from error
    queries, trained = read_validation(validation), read_model(model)
    _check_fit(trained, queries, validation)
    folder = Path(repository).absolute()
    _check_texts(app=app, model=model, validation=validation, repository=str(folder))
    folder.mkdir(parents=True, exist_ok=True)
    ensure(settings, [models_topic()])
    with tempfile.TemporaryDirectory(prefix="spillway-register-") as work:
        made = generate(trained, queries, Path(work), threads=threads, hardware=hardware)
        left_out, variants = list(made.left_out), []
        for each in made.built:
            try:
                variants.append(_measured(each, queries, folder, sorted({1, *sizes})))
            except ModelError as error:
                left_out.append(
                    NotBuilt(format=each.format, device=each.device, threads=each.threads, why=str(error)[:500])
                )
            else:
                say(f"{name} {each.key}: accuracy {variants[-1].accuracy:.4g}, up to {variants[-1].saturation:.4g}/s")
        for none in left_out:
            say(f"{name} {none.format} on {none.device}: not built: {none.why}")
        if not variants:
            raise ModelError(f"model {model!r}: no variant could be built: {left_out[0].why}")
        return _written(settings, folder, (app, name, model, validation), queries, variants, left_out)


def _check_fit(trained: Any, queries: Validation, source: str) -> None:
    if is_torch_module(trained):
        if queries.labels.dtype.kind == "U":
            raise UsageError(
                f"validation set {source}: a torch module's labels are the places of its scores, 0, 1, ..."
            )
        return
    if len(queries.inputs) > 1:
        raise UsageError(f"validation set {source}: an estimator takes one input, not {', '.join(queries.inputs)}")
    ((name, x),) = queries.inputs.items()
    takes = getattr(trained, "n_features_in_", None)
    if takes is not None and x.shape[1:2] != (takes,):
        raise UsageError(
            f"validation set {source}: the estimator takes {takes} features, and a query's {name!r} has the shape "
            f"{list(x.shape[1:])}"
        )


def _check_texts(**texts: str) -> None:
    """Raise UsageError for what no manifest can hold."""
    for what, text in texts.items():
        try:
            _TEXT.validate_python(text)
        except ValidationError as error:
            raise UsageError(f"the {what} {text!r:.300}: {error.errors()[0]['msg']}") from error


def check_hardware(hardware: Sequence[str]) -> None:
    unknown = [each for each in hardware if each not in HARDWARE]
    if unknown:
        raise UsageError(f"there is no kind of hardware {unknown[0]!r}; known: {', '.join(HARDWARE)}")


def _measured(built: Built, queries: Validation, folder: Path, sizes: Sequence[int]) -> Generated:
    """Store a variant's file and measure it in a worker, transport included. Raises ModelError where it cannot run."""
    file = store(built.file, folder)
    known: dict[str, Any] = {"key": built.key, "format": built.format, "threads": built.threads, "device": built.device}
    known |= {"file": file.name, "size": file.stat().st_size, "arguments": built.arguments}
    unmeasured: Any = Generated.model_construct(**known)
    stage = StageSpec(
        name=built.key,
        model=SERVED,
        arguments=served_arguments(str(folder), queries.signature, unmeasured),
        workers=WorkersSpec(where="process", device=built.device),
    )
    samples, began = queries.queries(), time.perf_counter()
    with closing(SingleWorker(stage, built.threads)) as worker:
        load = time.perf_counter() - began
        memory = Memory("cpu", [worker.pid])
        found = {size: measure(f"variant {built.key!r}", worker, samples, size, QUICK, memory) for size in sizes}
        answers = [
            each["label"]
            for first in range(0, len(samples), sizes[-1])
            for each in worker.predict([Inputs(query, {}, "") for query in samples[first : first + sizes[-1]]])
        ]
    right = sum(each == label for each, label in zip(answers, queries.labels.tolist(), strict=True))
    conditions = conditions_now(stage, folder, torch=worker.uses_torch)
    conditions = conditions.model_copy(update={"threads": built.threads})
    profile = StageProfile(measured=conditions, load=round(load, 3), batches=found)
    return Generated(**known, accuracy=right / len(queries), profile=profile)


def store(file: Path, folder: Path) -> Path:
    """Put a file into the repository, by the hash of what is in it, whole or not at all; replace a damaged one."""
    with file.open("rb") as stream:
        name = hashlib.file_digest(stream, "sha256").hexdigest() + file.suffix
    target = folder / name
    try:
        read_registered(folder, name)
    except ModelError:
        part = folder / f".{name}.{os.getpid()}"
        try:
            shutil.copyfile(file, part)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    return target


def _written(
    settings: ClientSettings,
    folder: Path,
    what: tuple[str, str, str, str],
    queries: Validation,
    variants: list[Generated],
    left_out: list[NotBuilt],
) -> Manifest:
    """Write the manifest as the next version, and see that it is the one that stands."""
    app, name, model, validation = what
    with Models(settings) as table:
        before = [each.version for each in table.require().values() if (each.app, each.name) == (app, name)]
    manifest = Manifest(
        app=app,
        name=name,
        version=1 + max(before, default=0),
        model=model,
        validation=validation,
        validated=len(queries),
        inputs=queries.signature,
        repository=str(folder),
        at=time.time(),
        by=writer(),
        variants=tuple(variants),
        left_out=tuple(left_out),
    )
    put(settings, manifest)
    with Models(settings) as table:
        stands = newest(table.require().values(), app).get((app, name))
    if stands != manifest:
        raise BrokerError(
            f"{name!r} was registered by {stands.by if stands else 'nobody'} meanwhile; register it again"
        )
    return manifest
