"""How a stage moves to other registered variants: the new ones load while the old ones serve, then the old ones drain.

`begin` returns the variants to add and their numbers of workers. Once `ready` is true, `finish` names the variants to
remove. When a model has a new version, each variant gets as many workers as the old version's variant with the same
key; if there is none, the fastest variant of the new version does. New models, and models whose variants had no
workers, change at once.

Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.topology.sections import with_counts

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from spillway.topology.variant_sections import VariantSpec, VariantsSpec


class Renewal:
    """Which registered variants a stage has, and which are to come."""

    def __init__(self, section: VariantsSpec) -> None:
        self.section = section
        """What serves."""
        self.coming: VariantsSpec | None = None
        """What is to serve next."""
        self.needed: dict[str, int] = {}
        """The workers that must be ready before."""

    def is_news(self, target: VariantsSpec) -> bool:
        """Whether these are others than those that serve, or are to serve next."""
        return target.of.keys() != (self.coming or self.section).of.keys()

    def begin(self, target: VariantsSpec, wanted: Mapping[str, int]) -> Collection[str]:
        """Go on to these; `wanted`: the workers that each present variant has.

        Returns what was to come and now is not.
        """
        before = set() if self.coming is None else self.coming.of.keys() - self.section.of.keys()
        stay = {name: wanted.get(name, 0) for name in target.of.keys() & self.section.of.keys()}
        needed: dict[str, int] = {}
        for name in sorted(self.section.of.keys() - target.of.keys()):
            successor = _successor(name, self.section.of[name], target)
            if wanted.get(name) and successor is not None and successor not in stay:
                needed[successor] = needed.get(successor, 0) + wanted[name]
        if not needed and not any(stay.values()):
            first = next(name for name, each in target.of.items() if each.workers.count)
            needed = {first: 1} if first not in stay else {}
            stay |= {first: 1} if first in stay else {}
        counts = dict.fromkeys(target.of, 0) | stay | needed
        self.coming = target.model_copy(update={"of": with_counts(target.of, counts)})
        self.needed = needed
        return before - target.of.keys()

    def ready(self, there: Mapping[str, int]) -> bool:
        """Whether the next ones can serve, with so many workers of each."""
        return self.coming is not None and all(there.get(name, 0) >= count for name, count in self.needed.items())

    def finish(self) -> Collection[str]:
        """Have the next ones serve; which go."""
        assert self.coming is not None  # they are ready
        gone = self.section.of.keys() - self.coming.of.keys()
        self.section, self.coming, self.needed = self.coming, None, {}
        return gone


def _successor(name: str, old: VariantSpec, target: VariantsSpec) -> str | None:
    """Which variant of the same model takes the place of one: that of the same key, else the fastest."""
    same = {each: spec for each, spec in target.of.items() if spec.architecture == old.architecture}
    key = _key(name, old)
    for each, spec in same.items():
        if _key(each, spec) == key:
            return each
    return min(same, key=lambda each: (same[each].takes[same[each].batch], each), default=None)


def _key(name: str, spec: VariantSpec) -> str:
    return name.removeprefix(f"{spec.architecture}-v{spec.version}-")
