"""What the registry holds of a model: one record a version, in the table `spillway.models` (INFaaS, section 3.2).

A record's key is `app/name/version`; its value is a `Manifest` as JSON: the variants that were generated of the model,
each with its file and its profile, and those that could not be, with the reason. The newest version of each name
counts that was not taken back. Files are in a folder, the repository, by the hash of what is in them.

`section_of` makes the variants of a stage of it: `NAME-vN-KEY`, so that two versions never share a lane or a size.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, ValidationError

from spillway.lineage.errors import SpecError
from spillway.topology import names
from spillway.topology.profiles import StageProfile  # noqa: TC001 - pydantic reads it
from spillway.topology.sections import Count, Section, Size, with_counts
from spillway.topology.variant_sections import Figure, Name, Text, VariantSpec, VariantWorkers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spillway.topology.variant_sections import VariantsSpec

SERVED: Final = "spillway.agents.registry.served:Registered"
"""What serves a registered variant."""
_LONGEST: Final = 80
_HARDWARE: Final = {"cpu": "core", "cuda": "cuda"}  # as the catalogue calls it
_ENOUGH: Final = 0.9  # of the peak; larger batches take longer and bring little


def model_name(name: str) -> str:
    """`name`, if a model can be registered under it. Raises ValueError that says why not."""
    names.stage_name(name)
    if len(name) > _LONGEST:
        raise ValueError(f"has {len(name)} characters; use {_LONGEST} at most")
    return name


def _sized(profile: Any) -> Any:
    """A profile whose sizes are numbers, which as JSON's keys are texts."""
    if not isinstance(profile, dict) or not isinstance(profile.get("batches"), dict):
        return profile
    batches = {int(size) if str(size).isdecimal() else size: told for size, told in profile["batches"].items()}
    return profile | {"batches": batches}


ModelName = Annotated[str, AfterValidator(model_name)]


class Generated(Section):
    """A variant that was built and measured. `key` tells it from the others of its model."""

    key: Name
    format: Text
    threads: Count = 1
    device: Literal["cpu", "cuda"] = "cpu"
    file: Text
    """In the repository: the SHA-256 of its bytes, and what it is."""
    size: Size
    arguments: dict[str, Any] = Field(default_factory=dict)
    """What serves it is told beside the file."""
    accuracy: Annotated[float, Field(ge=0, le=1)]
    """On the validation set."""
    profile: Annotated[StageProfile, BeforeValidator(_sized)]

    @property
    def takes(self) -> dict[int, float]:
        """Seconds of a batch at the median, by its size."""
        return {size: found.p50 for size, found in self.profile.batches.items()}

    @property
    def saturation(self) -> float:
        """Queries a second of one worker, at the size where they are most."""
        return max(size / seconds for size, seconds in self.takes.items())

    @property
    def batch(self) -> int:
        """The smallest batch that brings nine tenths of that."""
        return min(size for size, seconds in self.takes.items() if size / seconds >= _ENOUGH * self.saturation)

    @property
    def memory(self) -> int:
        """Bytes of a worker at its peak."""
        return max(1, *(found.memory for found in self.profile.batches.values()))


class NotBuilt(Section):
    """A variant that there is not, and why."""

    format: Text
    device: Text
    threads: Count | None = None
    """None: whatever their number."""
    why: Annotated[str, Field(min_length=1, max_length=500)]


class Manifest(Section):
    """One version of a registered model."""

    layout: Annotated[Literal[1], Field(alias="spillway-model")] = 1
    app: Text
    name: ModelName
    version: Count
    model: Text
    """As it was named when it was registered."""
    validation: Text
    validated: Count
    """Queries of the validation set."""
    inputs: dict[str, Any]
    """By name: dtype and shape."""
    repository: Text
    """The folder with the files."""
    at: Figure
    """When it was registered, in unix seconds."""
    by: Text
    variants: tuple[Generated, ...] = Field(min_length=1)
    left_out: tuple[NotBuilt, ...] = ()
    taken_back: StrictBool = False
    """Whether the version before it counts; no other version ever has its number."""

    def lane(self, variant: Generated) -> str:
        """What a stage calls the variant."""
        return f"{self.name}-v{self.version}-{variant.key}"


def key_of(app: str, name: str, version: int) -> bytes:
    return f"{app}/{name}/{version}".encode()


def encode(manifest: Manifest) -> bytes:
    return manifest.model_dump_json(by_alias=True).encode()


def decode(value: bytes) -> Manifest:
    """Read a record's value. Raises SpecError that says what is wrong with it."""
    try:
        return Manifest.model_validate(json.loads(value))
    except (ValueError, RecursionError) as error:
        if not isinstance(error, ValidationError):
            raise SpecError(f"it is not JSON: {error}") from error
        first = error.errors()[0]
        raise SpecError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def newest(manifests: Iterable[Manifest], app: str | None = None) -> dict[tuple[str, str], Manifest]:
    """The version that counts of each model, by application and name."""
    found: dict[tuple[str, str], Manifest] = {}
    for each in manifests:
        of = each.app, each.name
        if app in (None, each.app) and not each.taken_back and (of not in found or found[of].version < each.version):
            found[of] = each
    return found


def section_of(section: VariantsSpec, manifests: Iterable[Manifest]) -> VariantsSpec:
    """The section with the registered variants of its application; the fastest has a worker to begin with, alone.

    Raises SpecError where there are none.
    """
    of: dict[str, VariantSpec] = {}
    for manifest in newest(manifests, section.app).values():
        of |= {manifest.lane(each): _spec(section, manifest, each) for each in manifest.variants}
    if not of:
        raise SpecError(
            f"no model of the application {section.app!r} is registered on this cluster: 'spillway models register "
            f"NAME MODEL --app {section.app} --validation SET', or list variants in 'of'"
        )
    first = min(of, key=lambda name: (of[name].takes[of[name].batch], name))
    return section.model_copy(update={"of": with_counts(of, {first: 1})})


def _spec(section: VariantsSpec, manifest: Manifest, variant: Generated) -> VariantSpec:
    return VariantSpec(
        model=SERVED,
        arguments=served_arguments(section.repository or manifest.repository, manifest.inputs, variant),
        version=str(manifest.version),
        architecture=manifest.name,
        hardware=_HARDWARE[variant.device],
        units=float(variant.threads) if variant.device == "cpu" else 0.0,
        batch=variant.batch,
        accuracy=variant.accuracy,
        load=variant.profile.load or 0.0,
        memory=variant.memory,
        takes=variant.takes,
        saturation=variant.saturation,
        source=f"spillway models show {manifest.name} --app {manifest.app}",
        workers=VariantWorkers(where="process", count=0, device=variant.device),
    )


def served_arguments(repository: str, inputs: Mapping[str, Any], variant: Generated) -> dict[str, Any]:
    """What `SERVED` is constructed with."""
    told = {"repository": repository, "file": variant.file, "inputs": dict(inputs), "device": variant.device}
    return variant.arguments | told | {"threads": variant.threads}
