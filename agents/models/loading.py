"""Finding and constructing what a pipeline names: models, policies, and functions that split, choose or join.

A model is a class, `module:Name`; what else it may be, `spillway.agents.models.adapters` says.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from spillway.agents.models.adapters import FunctionModel, load_file, look_up_file, placed
from spillway.agents.models.model_errors import words_of
from spillway.agents.models.slow import named_if_slow
from spillway.agents.models.stateful import check_method, check_model, is_async, is_stateful
from spillway.lineage.errors import NO_TORCH, MissingExtraError, ModelError
from spillway.topology import names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from spillway.agents.models.inputs import Inputs
    from spillway.agents.models.stateful import StatefulModel


# What makes a model of a user's class, by name.
_SERVED: Final = {"velox": "spillway.agents.learning.velox.served:Served"}
TORCH_THREADS: Final = 1  # a stage uses more cores by replicas and instances


def limit_torch_threads(threads: int) -> None:
    """Let torch, if a model has imported it, use this many threads for one operation."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)


class Model(Protocol):
    """What a stage runs: one result, a mapping with string keys, for each of the inputs, in their order.

    A model may also have a `version` (text, told in timings), an `input_signature` (as a stage's `inputs`) and a method
    `example()`, which returns a query's inputs, or a list of them, to measure it on.
    """

    def predict(self, batch: list[Inputs]) -> Sequence[Mapping[str, Any]]:
        """Run one batch. It is never called from two threads at once."""
        ...


def load_model(stage: str, name: str, arguments: Mapping[str, Any], device: str = "cpu") -> Model:
    """Construct the model that `name` refers to (`spillway.topology.names.model`), found from the working directory.

    Raises ModelError that names the stage, the model and the cause. A torch module is wrapped so that it takes batches
    (see `spillway.agents.models.torch_module`); torch is never imported for a model that does not do so itself.
    """
    place = f"stage {stage!r}: model {name!r}"
    model = construct(place, name, arguments, device)
    if is_torch_module(model):
        from spillway.agents.models.torch_module import TorchModel  # noqa: PLC0415 - costs 150 MB, so only where torch is used

        return TorchModel(model, device)
    if not callable(getattr(model, "predict", None)):
        raise ModelError(f"{place}: {type(model).__name__} has no method predict(batch){_stateful_hint(model)}")
    check_method(f"{place}: {type(model).__name__}.predict", "predict", model.predict, ("self", "batch"))
    return model  # type: ignore[no-any-return]


def load_stateful_model(stage: str, name: str, arguments: Mapping[str, Any]) -> StatefulModel:
    """Construct a stateful model on the CPU, and check its form. Raises ModelError that names the stage and cause."""
    place = f"stage {stage!r}: model {name!r}"
    model = construct(place, name, arguments)
    check_model(place, model)
    return model  # type: ignore[no-any-return]


def load_function(stage: str, role: str, name: str) -> Callable[..., Any]:
    """Find the function `module:function` that a stage names as its split, choose or join."""
    return find_function(f"stage {stage!r}: {role} {name!r}", name)


def find_function(place: str, name: str) -> Callable[..., Any]:
    """Find the function `module:function`. Raises ModelError that begins with `place`."""
    function = _find(place, name)
    if not callable(function):
        raise ModelError(f"{place}: {type(function).__name__} is not a function")
    if is_async(function):
        raise ModelError(f"{place} must be a plain function that returns its result, not an async one")
    return function  # type: ignore[no-any-return]


def load_policy(name: str) -> object:
    """Find the policy `module:Class` of the user's own, whatever that is. Raises ModelError that names it."""
    return _find(f"policy {name!r}", name)


def look_up_model(stage: str, name: str) -> None:
    """Find a model's class or function, or its file, and construct nothing. Raises ModelError."""
    kind, where = names.model_parts(name)
    try:
        if kind in names.MODEL_FILES:
            look_up_file(where)
            return
    except ModelError as error:
        raise ModelError(f"stage {stage!r}: model {name!r}: {error}") from error
    load_function(stage, "model", where)


def construct(place: str, name: str, arguments: Mapping[str, Any], device: str = "cpu") -> Any:
    """What `name` makes of the arguments, whatever it is; `device` is where a file is loaded to.

    Raises ModelError that begins with `place`. One that takes long is named (`spillway.agents.models.slow`).
    """
    kind, where = names.model_parts(name)
    arguments = placed(arguments)
    with named_if_slow(place):
        if kind in names.MODEL_FILES:
            return load_file(place, kind, where, arguments, device)
        if kind == "function":
            return _function_model(place, where, arguments)
        factory = _find(place, where)
        if not callable(factory):
            raise ModelError(f"{place}: {type(factory).__name__} is not a class; name a class with a predict method")
        try:
            return _find(place, _SERVED[kind])(factory, arguments) if kind else factory(**arguments)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise ModelError(f"{place}: constructing it failed: {words_of(error)}") from error


def _function_model(place: str, name: str, arguments: Mapping[str, Any]) -> FunctionModel:
    function = _find(place, name)
    if isinstance(function, type) or not callable(function) or is_async(function):
        raise ModelError(f"{place}: {name} is not a plain function; write a class with a predict method as {name!r}")
    try:
        inspect.signature(function).bind([], **arguments)
    except TypeError as error:
        raise ModelError(f"{place}: it cannot be called with a batch and its arguments: {error}") from error
    except ValueError:  # a builtin that tells no signature; calling it will tell
        pass
    return FunctionModel(partial(function, **arguments), function)


def _find(place: str, name: str) -> Any:
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        raise ModelError(f"{place}: write it as module:Name, as in 'models:Detector'")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)  # last, so that it takes no other module's place
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name == "torch":
            raise MissingExtraError(f"{place} needs torch: {NO_TORCH}") from error
        if error.name and (error.name == module_name or module_name.startswith(error.name + ".")):
            raise ModelError(
                f"{place}: there is no module {module_name!r} in {here}, beside the pipeline file or on sys.path"
            ) from error
        raise ModelError(f"{place}: importing {module_name!r} failed: {words_of(error)}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ModelError(f"{place}: importing {module_name!r} failed: {words_of(error)}") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ModelError(f"{place}: module {module_name!r} has no {attribute!r}{_taken(module_name)}")
        found = getattr(found, part)
    return found


def _taken(module_name: str) -> str:
    """Where a module of the working directory has the name of another, which comes before it: which that is."""
    name = module_name.partition(".")[0]
    found = getattr(sys.modules.get(name), "__file__", None) or "built into Python"
    own = [path for path in (Path.cwd() / f"{name}.py", Path.cwd() / name / "__init__.py") if path.exists()]
    if not own or Path(found) in own:
        return ""
    return f"; it is {found}, which is found before {own[0]}: rename yours"


def _stateful_hint(model: Any) -> str:
    if not is_stateful(model):
        return ""
    kind = "keyed" if hasattr(model, "key") else "shared"
    return f"; it has the methods of a stateful model, but the stage declares no state: add 'state: {kind}'"


def is_torch_module(model: Any) -> bool:
    """Whether it is a torch.nn.Module; torch is not imported to tell."""
    torch = sys.modules.get("torch")
    return torch is not None and hasattr(torch, "nn") and isinstance(model, torch.nn.Module)
