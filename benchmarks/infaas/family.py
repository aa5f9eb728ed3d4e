"""An emulated family of variants: 22 architectures, 175 variants, as many as INFaaS was measured with (its Table 8).

Nothing here was measured. The paper gives figures of ResNet50 and the ends of ranges; the rest lies between, by this
formula, which was fixed before any contest and is not tuned:

* Architectures, accuracies (BLEU of GNMT), numbers of variants, layers and parameters: Table 8. Work w = layers x
  parameters, r = w / w of ResNet50. A family's variants are the first so many of `_BUILDS`.
* ResNet50: Table 2. TensorFlow on 4 CPUs takes 200 ms (5/s), Neuron on a core of Inferentia 20 ms (100/s), TensorRT on
  a V100 15 ms (800/s), batches of 1, 1 and 8 (6.2 says which). A rate of more than 1 / latency is taken as overhead
  beside the worker's own time: 0, 10 and 5 ms. TensorRT with batches of 1 serves 300/s: two of them served 15 % fewer
  than 700/s (6.2). So a batch of n takes 200 n, 10 n, and 2.38 + .952 n ms.
* Other architectures: times and overheads x r^p. "The inference latencies for a single query range from 1.5 ms to
  5.7 s" (1): p = .751 above ResNet50 brings the slowest, NasNetLarge on CPUs, to 5.7 s; p = .688 below brings the
  fastest, MobileNetV2 by TensorRT, to 1.5 ms. Frameworks: x `_SLOWER`, our own guess, none outside of the range.
* Loading: .59 s x (1, 1.5, 2 by hardware) x (parameters / MobileNetV2's)^q, at most 11 s (1); q = .552 brings VGG19
  on a V100 to it.
* Memory: so that 6.2's cost per GB and second (.031, .190, .498) gives Table 2's costs 1 : 3 : 16, with 1 GB for
  ResNet50 on CPUs. Half of it is the runtime's, half grows with the parameters; a batch takes 2 MB more for each query
  beyond the build's that the paper names (batch-1 is 1.4 % cheaper than batch-8 in 6.2).
* Hardware: prices of an hour by section 1 (.096 of 2 vCPUs, 3.06 of a V100); an Inferentia chip at Table 2's 3 to 1.
"""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

from spillway.topology.variant_sections import HostKind
from spillway.topology.variants.variant import Variant

_GB: Final = 1_000_000_000
_CHEAP: Final = 0.031  # per GB and second of CPU memory, as 6.2 has it


class _Architecture(NamedTuple):
    name: str
    accuracy: float
    variants: int
    layers: int
    parameters: int
    app: str = "classification"

    @property
    def work(self) -> float:
        return float(self.layers * self.parameters)


ARCHITECTURES: Final = (
    _Architecture("MobileNetV1", 0.704, 10, 30, 4_253_864),
    _Architecture("MobileNetV2", 0.713, 3, 30, 3_538_984),
    _Architecture("AlexNet", 0.566, 9, 8, 62_378_344),
    _Architecture("DenseNet121", 0.750, 12, 121, 8_062_504),
    _Architecture("DenseNet169", 0.762, 5, 169, 14_307_880),
    _Architecture("DenseNet201", 0.773, 5, 201, 20_242_984),
    _Architecture("ResNet50", 0.749, 19, 50, 25_636_712),
    _Architecture("ResNet50V2", 0.760, 4, 50, 25_613_800),
    _Architecture("ResNext50", 0.777, 3, 50, 25_700_000),
    _Architecture("ResNet101", 0.764, 12, 101, 44_707_176),
    _Architecture("ResNet101V2", 0.772, 4, 101, 44_675_560),
    _Architecture("ResNext101", 0.787, 3, 101, 45_300_000),
    _Architecture("ResNet152", 0.766, 12, 152, 60_419_944),
    _Architecture("ResNet152V2", 0.780, 4, 152, 60_380_648),
    _Architecture("VGG16", 0.713, 18, 16, 138_357_544),
    _Architecture("VGG19", 0.713, 12, 19, 143_667_240),
    _Architecture("InceptionV3", 0.779, 12, 48, 23_851_784),
    _Architecture("Xception", 0.790, 3, 76, 22_910_480),
    _Architecture("Inception-ResNetV2", 0.803, 10, 164, 55_873_736),
    _Architecture("NasNetMobile", 0.744, 3, 914, 5_326_716),
    _Architecture("NasNetLarge", 0.825, 3, 1244, 88_949_818),
    _Architecture("GNMT", 0.245, 9, 16, 210_000_000, "translation"),
)


class _On(NamedTuple):
    """ResNet50 on one kind of hardware: a batch of n takes alpha + beta n, by its fastest framework."""

    alpha: float
    beta: float
    overhead: float
    units: float
    loading: float  # x .59 s
    per_gb: float  # cost of a GB and second (6.2)
    cost: float  # Table 2
    usual: int  # the batch that the cost is of


_ON: Final = {
    "cpu": _On(0.0, 0.200, 0.0, 4.0, 1.0, 0.031, 1.0, 1),
    "inferentia": _On(0.0, 0.010, 0.010, 1.0, 1.5, 0.190, 3.0, 1),
    # 300/s singly and 800/s in batches of 8
    "v100": _On((8 / 300 - 8 / 800) / 7, (8 / 800 - 1 / 300) / 7, 0.005, 0.0, 2.0, 0.498, 16.0, 8),
}
_SLOWER: Final = {
    "cpu": {"tensorflow": 1.0, "pytorch": 0.95, "caffe2": 0.9},
    "inferentia": {"neuron": 1.0},
    "v100": {"tensorrt": 1.0, "tensorflow": 2.0, "pytorch": 2.0, "caffe2": 2.0},
}
# (hardware, framework, batch); an architecture has the first ones.
_BUILDS: Final = (
    ("cpu", "tensorflow", 1), ("inferentia", "neuron", 1), ("v100", "tensorrt", 1), ("v100", "tensorrt", 8),
    ("v100", "tensorrt", 16), ("cpu", "pytorch", 1), ("v100", "tensorrt", 4), ("inferentia", "neuron", 4),
    ("v100", "tensorrt", 32), ("v100", "tensorrt", 64), ("cpu", "caffe2", 1), ("v100", "pytorch", 8),
    ("inferentia", "neuron", 8), ("v100", "tensorflow", 8), ("v100", "tensorrt", 2), ("inferentia", "neuron", 2),
    ("v100", "pytorch", 1), ("v100", "tensorflow", 1), ("v100", "caffe2", 1),
)  # fmt: skip
_BY_NAME: Final = {each.name: each for each in ARCHITECTURES}
_MIDDLE: Final = _BY_NAME["ResNet50"]
_ABOVE: Final = 0.751
_BELOW: Final = 0.688
_LOADING: Final = 0.59
_LOADING_MOST: Final = 11.0
_LOADING_GROWS: Final = 0.552
_PER_QUERY: Final = 2_000_000  # bytes of a larger batch

# 6: m5.2xlarge, inf1.2xlarge and p3.2xlarge; instances take 20 to 30 s to start (4.2.3).
HOSTS: Final = {
    name: HostKind.model_validate({"start": "25s", "price": price, "has": has})
    for name, price, has in (
        ("m5", 0.384, {"cpu": {"units": 8, "memory": "32GiB"}}),
        ("inf1", 0.576, {"inferentia": {"units": 4, "memory": "16GiB"}}),
        ("p3", 3.06, {"cpu": {"units": 8, "memory": "61GiB"}, "v100": {"units": 1, "memory": "16GiB"}}),
    )
}


@cache
def family(slow: float = 1.0) -> tuple[Variant, ...]:
    """All 175 variants; `slow`: times as long that queries take, though not loading."""
    return tuple(
        _variant(architecture, slow, *build)
        for architecture in ARCHITECTURES
        for build in _BUILDS[: architecture.variants]
    )


def of(architecture: str) -> tuple[Variant, ...]:
    """The variants of one architecture."""
    return tuple(each for each in family() if each.architecture == architecture)


def _variant(of: _Architecture, slow: float, hardware: str, framework: str, batch: int) -> Variant:
    on = _ON[hardware]
    ratio = of.work / _MIDDLE.work
    slower = slow * ratio ** (_ABOVE if ratio > 1 else _BELOW)
    framed = slower * _SLOWER[hardware][framework]
    loading = _LOADING * on.loading * (of.parameters / _BY_NAME["MobileNetV2"].parameters) ** _LOADING_GROWS
    grown = 0.5 + 0.5 * of.parameters / _MIDDLE.parameters
    memory = on.cost * _CHEAP / on.per_gb * grown * _GB + _PER_QUERY * (batch - on.usual)
    sizes = [size for size in (1, 2, 4, 8, 16, 32, 64) if size <= batch]
    return Variant(
        name=f"{of.name.lower()}-{framework}-{hardware}-{batch}",
        app=of.app,
        architecture=of.name,
        hardware=hardware,
        units=on.units,
        batch=batch,
        accuracy=of.accuracy,
        load=min(_LOADING_MOST, loading),
        memory=round(memory),
        takes={size: (on.alpha + on.beta * size) * framed for size in sizes},
        overhead=on.overhead * slower,
        cost=memory / _GB * on.per_gb / _CHEAP,
    )
