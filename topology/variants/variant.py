"""Variants of models: what each takes, costs and is worth, and the file that lists an application's (INFaaS, 2.1, 3.2).

    spillway-variants: 1
    variants:
      resnet50-tensorrt-8:
        {app: faces, architecture: ResNet50, hardware: v100, batch: 8, accuracy: 0.749, load: 3.5s, memory: 996MB,
         takes: {1: 3.3ms, 8: 10ms}, overhead: 5ms, cost: 0.496}

A variant is one model, optimized one way for one kind of hardware (`spillway.topology.capacity.hardware`). A profile is
of its own worker: `takes` is a batch's time there, `overhead` what a query takes beside it. Seconds, bytes, queries a
second.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field

from spillway.lineage.errors import SpecError
from spillway.topology import names
from spillway.topology.quantities import show_duration
from spillway.topology.reading.models import read_model
from spillway.topology.sections import Section
from spillway.topology.spec import EmulatedSpec
from spillway.topology.variant_sections import Figures, Name, Text

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from spillway.topology.capacity.hardware import Catalogue
    from spillway.topology.variant_sections import VariantsSpec

_HOUR: Final = 3_600.0


class _Profile(Figures):
    """What a file says of one variant."""

    app: Text


class Variant(_Profile):
    """One variant."""

    name: Name

    def __hash__(self) -> int:
        return hash(self.name)

    @cached_property
    def _emulated(self) -> EmulatedSpec:
        return EmulatedSpec(table=dict(sorted(self.takes.items())))

    def duration(self, count: int) -> float:
        """Seconds of a batch of `count` at the worker."""
        return self._emulated.duration(count)

    @cached_property
    def latency(self) -> float:
        """T_inf: seconds of a query whose batch is full and waits for nothing."""
        return self.overhead + self.duration(self.batch)

    @cached_property
    def rate(self) -> float:
        """Q: queries a second of one worker at its peak, its saturation rate."""
        if self.saturation is not None:
            return self.saturation
        return max(size / self.duration(size) for size in {*self.takes, self.batch} if size <= self.batch)

    @property
    def price(self) -> float:
        """C: the cost of one worker, a second."""
        if self.cost is None:
            raise SpecError(f"variant {self.name!r} has no cost; give 'cost', or price it by a hardware catalogue")
        return self.cost


class VariantsFile(Section):
    """What a file of variants says."""

    version: Annotated[Literal[1], Field(alias="spillway-variants")]
    variants: Annotated[dict[Name, _Profile], Field(min_length=1)]


def read_variants(path: Path, hardware: Catalogue) -> tuple[Variant, ...]:
    """Read a file of variants for such hardware. Raises SpecError that names the file, the place and the fix."""
    fix = "write a variant as {app: A, architecture: M, hardware: KIND, batch: 8, accuracy: 0.7, load: 2s, ...}"
    told = read_model(path, VariantsFile, "file of variants", fix)
    found = (Variant(name=name, **each.model_dump()) for name, each in told.variants.items())
    return priced(found, hardware, str(path))


def priced(variants: Iterable[Variant], hardware: Catalogue, where: str) -> tuple[Variant, ...]:
    """The variants, with the price of their units where they name no cost of their own.

    Raises SpecError for one that no hardware of the catalogue can run; `where` is the place it names.
    """
    found = []
    for each in variants:
        kind = hardware.kinds.get(each.hardware)
        if kind is None:
            meant = names.meant(each.hardware, hardware.kinds)
            raise SpecError(f"{where}: {each.name}: the catalogue has no hardware {each.hardware!r}; {meant}")
        most = None if kind.memory is None else kind.memory * max(1.0, each.units)
        if most is not None and each.memory > most:
            raise SpecError(
                f"{where}: {each.name} needs {each.memory >> 20} MiB, and its share of {each.hardware} has "
                f"{int(most) >> 20} MiB; give it more units"
            )
        cost = kind.price * max(each.units, 0.0) / _HOUR if each.cost is None else each.cost
        found.append(each.model_copy(update={"cost": cost}))
    return tuple(found)


def variants_of(section: VariantsSpec) -> tuple[Variant, ...]:
    """A stage's variants, as its section says; one without a cost costs as much as it has units."""
    own = {"model", "arguments", "version", "workers"}
    return tuple(
        Variant(
            name=name,
            app=section.app,
            **each.model_dump(exclude=own | {"cost"}),
            cost=each.units if each.cost is None else each.cost,
        )
        for name, each in section.of.items()
    )


def told(variant: Variant) -> str:
    """A variant in words."""
    return (
        f"{variant.name} ({variant.architecture} on {variant.hardware}, accuracy {variant.accuracy:.3g}, "
        f"{show_duration(float(f'{variant.latency:.3g}'))}, up to {variant.rate:.4g}/s)"
    )
