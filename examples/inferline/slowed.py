"""The thesis' pipelines at a pace that a laptop keeps: all durations and the SLO times a factor, rates by it.

What takes a thread's switch or a hop through Kafka is then a small part of an emulated accelerator's batch, as it is
where the accelerators are real.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from spillway.topology.load import load
from spillway.topology.profiles import HardwareProfile, read_profile_file, write_profiles

if TYPE_CHECKING:
    from spillway.topology.spec import EmulatedSpec

FOLDER: Final = Path(__file__).parent
HARDWARE: Final = FOLDER / "hardware.yaml"
FACTOR: Final = 5.0
THESIS: Final = ("cpu", "k80")  # its hardware; of v100, which this folder has beside it, one worker is half of a plan


def pipeline_file(which: str, name: str, folder: Path, factor: float = FACTOR) -> Path:
    """Write the pipeline `which` of this folder, slower and called `name`, into `folder`. Models take what they do."""
    spec = load(FOLDER / f"{which}.yaml").written
    told = spec.model_dump(mode="json", exclude_defaults=True) | {"name": name, "slo": factor * spec.slo}
    for stage, dumped in zip(spec.stages, told["stages"], strict=True):
        dumped.pop("policy", None)
        if stage.emulated is not None:
            dumped["emulated"] = _slower(stage.emulated, factor)
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(told, sort_keys=False), encoding="utf-8")
    return path


def profiles_file(folder: Path, factor: float = FACTOR, kinds: tuple[str, ...] | None = None) -> Path:
    """Write this folder's profiles, slower, into `folder`, of all hardware or of `kinds`.

    Load times stay: the tuner's clock is nobody's to slow.
    """
    known = read_profile_file(FOLDER / "profiles.yaml").hardware
    slower = {
        kind: {
            stage: HardwareProfile.model_validate(each.model_dump(exclude_none=True) | _slower(each, factor))
            for stage, each in stages.items()
        }
        for kind, stages in known.items()
        if kinds is None or kind in kinds
    }
    path = folder / "profiles.yaml"
    write_profiles(path, {}, slower)
    return path


def hardware_file(folder: Path, kinds: tuple[str, ...]) -> Path:
    """Write these kinds of this folder's hardware into `folder`."""
    told, path = yaml.safe_load(HARDWARE.read_text(encoding="utf-8")), folder / "hardware.yaml"
    path.write_text(yaml.safe_dump(told | {"kinds": {kind: told["kinds"][kind] for kind in kinds}}), encoding="utf-8")
    return path


def _slower(of: EmulatedSpec, factor: float) -> dict[str, Any]:
    if of.table is not None:
        return {"table": {size: factor * seconds for size, seconds in of.table.items()}}
    return {key: factor * value for key, value in (("alpha", of.alpha), ("beta", of.beta)) if value is not None}
