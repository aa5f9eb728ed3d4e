"""Variants of models: what each takes, costs and is worth (INFaaS, 2.1).

A variant is one model, optimized one way for one kind of hardware (`spillway.topology.capacity.hardware`). A profile is
of its own worker: `takes` is a batch's time there, `overhead` what a query takes beside it. Seconds, bytes, queries a
second.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from spillway.lineage.errors import SpecError
from spillway.topology.spec import EmulatedSpec
from spillway.topology.variant_sections import Figures, Name, Text

if TYPE_CHECKING:
    from spillway.topology.variant_sections import VariantsSpec


class Variant(Figures):
    """One variant."""

    name: Name
    app: Text

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
            raise SpecError(f"variant {self.name!r} has no cost; give 'cost'")
        return self.cost


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
