"""A stage's `variants:` section: one application's variants of models, of which one answers each query (INFaaS).

    variants:
      app: digits
      on_miss: closest
      of:
        linear: {model: "models:Linear", architecture: linear, accuracy: 0.93, batch: 8, takes: {1: 1ms, 8: 2ms}}

What a variant's figures mean: `spillway.topology.variants.variant`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, model_validator

from spillway.topology import names
from spillway.topology.quantities import size
from spillway.topology.sections import (
    Count,
    ModelReference,
    Positive,
    Seconds,
    Section,
    Size,
    Some,
    WorkersSpec,
    in_processes,
)

Name = Annotated[str, AfterValidator(names.stage_name)]
Text = Annotated[str, Field(min_length=1, max_length=200)]
Figure = Annotated[float, Field(ge=0, allow_inf_nan=False)]
OnMiss = Literal["closest", "wait", "fail"]
Budget = Literal["remaining", "static"]
_START = 25.0  # seconds: "VMs (20-30 seconds)" (INFaaS, 4.2.3)
_LOAD = 3.0  # seconds: a Python process that imports scikit-learn takes two on a core of its own


class Figures(Section):
    """What a variant takes, costs and is worth. Seconds, bytes, queries a second."""

    architecture: Text
    """The registered model that it was made of."""
    hardware: Name
    """A kind of the hardware catalogue."""
    units: Figure = 1.0
    """Of that hardware, for one worker; 0 where workers share a unit and only its memory is short."""
    batch: Count
    """The most queries of a batch."""
    accuracy: Annotated[float, Field(ge=0, le=1)]
    load: Seconds
    """Until a new worker serves."""
    memory: Size
    takes: Annotated[dict[Annotated[int, Field(strict=True, ge=1)], Positive], Field(min_length=1)]
    """Seconds of a batch at the worker, by its size; on a line in between."""
    overhead: Seconds = 0.0
    """Of a query, beside its batch: conversions and transport."""
    saturation: Positive | None = None
    """Queries a second at the peak; None: those of the best batch, one after the other."""
    cost: Figure | None = None
    """Of one worker, a second; None: the price of its units."""
    source: str = ""
    """Where the figures are from, or how they were reckoned; emulated ones say so."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if min(self.takes) != 1 or max(self.takes) < self.batch:
            raise ValueError(
                f"takes: has batches of {min(self.takes)} to {max(self.takes)}; give seconds for 1 and for {self.batch}"
            )
        return self


class VariantWorkers(WorkersSpec):
    """As of a stage, but there may be none."""

    count: Some | None = None
    """None: one; 0: it is loaded when somebody wants it."""


class VariantSpec(Figures):
    """One variant of a stage, with workers of its own."""

    model: ModelReference
    arguments: dict[str, Any] = Field(default_factory=dict)
    version: str | None = None
    hardware: Name = "core"
    batch: Count = 1
    load: Seconds = _LOAD
    memory: Size = 1
    """What a worker takes; by default it is not counted."""
    cost: Figure | None = None
    """Of one worker, a second; None: as much as it has units."""
    workers: Annotated[VariantWorkers, BeforeValidator(in_processes)] = Field(
        default_factory=lambda: VariantWorkers(where="process")
    )


class Room(Section):
    """What a host has of one kind of hardware; None: any amount."""

    units: Figure | None = None
    memory: Annotated[int, BeforeValidator(size), Field(ge=0)] | None = None


class HostKind(Section):
    """One kind of host."""

    price: Figure = 0.0
    """An hour."""
    start: Seconds = _START
    most: Count | None = None
    """How many there may be; None: any number."""
    has: Annotated[dict[Name, Room], Field(min_length=1)]


class EmulatedHosts(HostKind):
    """Hosts of one kind that a stage's controller starts and lets go. Their workers run on the front's machine."""

    count: Annotated[int, Field(strict=True, ge=0)] = 0
    """How many there are when the stage is served first."""


class VariantsSpec(Section):
    """The variants of one application, and who answers a query that finds none as it needs."""

    app: Text
    of: dict[Name, VariantSpec] = Field(default_factory=dict)
    """None: those that are registered of the application (`spillway.topology.variants.manifest`)."""
    repository: str | None = None
    """Where the registered files are seen from here; None: where whoever registered them said."""
    on_miss: OnMiss = "closest"
    """While no active variant meets a query's needs (`spillway.topology.variants.selection`)."""
    budget: Budget = "remaining"
    """What is compared with the latency that is asked."""
    scale: StrictBool = True
    """Whether a controller loads what is asked for, and has as many workers as the load takes."""
    settle: Seconds = 10.0
    """The least time for which fewer workers must do before there are fewer; 0 is the paper's, a variant's `load`."""
    idle: Positive | None = None
    """After how long without a query an architecture loses its last worker; None: it keeps one."""
    room: dict[Name, Figure] | None = None
    """Units of hardware that workers may take together; None: of `core` the machine's, of others any number."""
    hosts: Annotated[dict[Name, EmulatedHosts], Field(min_length=1)] | None = None
    """Emulated hosts by kind, for trying how hosts are added (INFaaS, 4.2.3); None: this machine, with its `room`."""

    @property
    def registered(self) -> bool:
        """Whether its variants are the registry's: the file lists none."""
        return not self.of
