"""What has to fit together in a stage's `variants:` section, or between it and the stage's other fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.topology.problems import Problem
from spillway.topology.quantities import show_duration
from spillway.topology.rules.ensemble import of_workers
from spillway.topology.spec import EmulatedSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spillway.topology.reading.fields import PipelineFields, StageFields
    from spillway.topology.variant_sections import EmulatedHosts, VariantSpec, VariantsSpec

    Wrong = tuple[tuple[str, ...], str]  # a field of the section, and a text

_MOST = 256


def check_variants(fields: PipelineFields, stage: StageFields) -> Iterator[Problem]:
    """Find what does not fit together."""
    section = stage.read("variants")
    if section is None:
        return
    for name in ("fronts", "standby"):
        if f"workers.{name}" in stage.given and getattr(stage.spec.workers, name) != (name == "fronts"):
            text = f"a stage with variants has one front, because a variant may have only one worker; drop {name!r}"
            yield Problem(stage.path(f"workers.{name}"), text, on_key=True)
    for name in ("limit", "size", "max", "objective"):
        if f"batching.{name}" in stage.given:
            text = f"each variant has a 'batch' of its own; drop {name!r}"
            yield Problem(stage.path(f"batching.{name}"), text, on_key=True)
    listed = "variants.of" in stage.given and stage.usable("variants.of")
    found = [*_wrong(fields, stage, section)] if listed else []
    if section.hosts is not None and stage.usable("variants.hosts"):
        found += _of_hosts(section, section.hosts, section.of if stage.usable("variants.of") else {})
    for path, text in found:
        yield Problem(stage.path("variants", *path), text)


def _of_hosts(
    section: VariantsSpec, hosts: Mapping[str, EmulatedHosts], of: Mapping[str, VariantSpec]
) -> Iterator[Wrong]:
    if section.room is not None:
        yield ("room",), "does not apply beside 'hosts': each kind of host says what it 'has'; drop 'room'"
    if not section.scale:
        yield ("hosts",), "only the controller adds hosts; drop 'hosts', or 'scale: false'"
    for kind, each in hosts.items():
        if each.most is not None and each.count > each.most:
            yield ("hosts", kind, "count"), f"is over 'most', {each.most}; lower it, or raise 'most'"
    if not any(each.count for each in hosts.values()):
        yield ("hosts",), "there is none at first; give one kind a 'count'"
    for name, spec in of.items():
        if not any(spec.hardware in each.has for each in hosts.values()):
            yield ("of", name), f"no host has hardware {spec.hardware!r}; add it to what a kind of 'hosts' 'has'"


def _wrong(fields: PipelineFields, stage: StageFields, section: VariantsSpec) -> Iterator[Wrong]:
    if not section.of:
        yield ("of",), "is empty; list at least one variant, or leave it out to serve the registered ones"
        return
    if len(section.of) > _MOST:
        yield ("of",), f"there are {len(section.of)}; a stage has {_MOST} at most"
    for name, spec in section.of.items():
        for field, text in of_workers(1, spec.workers):
            yield ("of", name, "workers", field), text
        if stage.usable("queue") and stage.spec.queue < spec.batch:
            yield ("of", name, "batch"), f"is over the stage's 'queue', {stage.spec.queue}; raise 'queue'"
    if all(spec.workers.count == 0 for spec in section.of.values()):
        yield ("of",), "no variant starts with a worker; give one of them 'workers: {count: 1}'"
    fastest = min(section.of, key=lambda name: _latency(section.of[name]))
    latency = _latency(section.of[fastest])
    if fields.usable("slo") and latency > fields.head.slo:
        takes, slo = show_duration(float(f"{latency:.3g}")), show_duration(fields.head.slo)
        yield ("of",), f"the fastest, {fastest!r}, takes {takes} with a full batch, and the SLO is {slo}"


def _latency(spec: VariantSpec) -> float:
    return spec.overhead + EmulatedSpec(table=dict(sorted(spec.takes.items()))).duration(spec.batch)
