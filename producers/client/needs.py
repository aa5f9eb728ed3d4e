"""What a query of an application with variants needs (`topology.variants.needs`): parameters and a deadline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.topology.variants.needs import needs_of

if TYPE_CHECKING:
    from spillway.lineage.message import Value


def asked(
    app: str | None = None,
    latency: float | str | None = None,
    accuracy: float | str | None = None,
    model: str | None = None,
    variant: str | None = None,
) -> tuple[dict[str, Value], float | None]:
    """The parameters of a query, and its deadline in seconds, None where it asks no latency.

    Raises UsageError that names the argument and the fix.
    """
    told = {"app": app, "latency": latency, "accuracy": accuracy, "model": model, "variant": variant}
    parameters: dict[str, Value] = {name: value for name, value in told.items() if value is not None}
    return parameters, needs_of({"app": "any", **parameters}).latency
