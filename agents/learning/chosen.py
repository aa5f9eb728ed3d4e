"""What an ensemble's section names: its selection, with parameters, and its loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from spillway.agents.learning.selection import LOSSES, Epsilon, Exp3, Exp4, Static, Thompson, Uniform
from spillway.agents.learning.stacking import Stacked
from spillway.agents.models.loading import load_function
from spillway.agents.models.model_errors import words_of
from spillway.lineage.errors import UsageError
from spillway.topology.names import meant

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spillway.agents.learning.selection import Selection

POLICIES: Final[dict[str, type[Any]]] = {
    "exp3": Exp3,
    "exp4": Exp4,
    "stacked": Stacked,
    "static": Static,
    "uniform": Uniform,
    "epsilon": Epsilon,
    "thompson": Thompson,
}
_METHODS = ("initial", "select", "weights", "observe")


def selection_of(stage: str, said: Mapping[str, Any]) -> Selection:
    """Raises UsageError for a selection that there is not, or not with these parameters; ModelError as loading does."""
    parameters = dict(said)
    name = str(parameters.pop("name"))
    kind = load_function(stage, "selection", name) if ":" in name else POLICIES.get(name)
    if kind is None:
        raise UsageError(f"there is no selection {name!r}; {meant(name, POLICIES)} (or write 'module:Class')")
    try:
        made = kind(**parameters)
    except TypeError as error:
        known = ", ".join(getattr(kind, "__dataclass_fields__", {})) or "none"
        raise UsageError(f"selection {name!r} does not take these parameters: {error}; it takes: {known}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise UsageError(f"selection {name!r} raised {words_of(error)}") from error
    lacks = [method for method in _METHODS if not callable(getattr(made, method, None))]
    if lacks:
        raise UsageError(
            f"selection {name!r} has no method {lacks[0]!r}; see spillway.agents.learning.selection.Selection"
        )
    return made  # type: ignore[no-any-return]


def loss_of(stage: str, name: str) -> Callable[[Any, Any], float]:
    """The loss, of (truth, answer). Raises UsageError for one that there is not; ModelError as loading does."""
    found = load_function(stage, "loss", name) if ":" in name else LOSSES.get(name)
    if found is None:
        raise UsageError(f"there is no loss {name!r}; {meant(name, LOSSES)}, or write 'module:function'")
    return found
