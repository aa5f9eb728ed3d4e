"""The emulated family has the paper's figures."""

import itertools
from collections import Counter

import pytest

from benchmarks.infaas.family import ARCHITECTURES, HOSTS, family, of
from spillway.lineage.errors import SpecError
from spillway.topology.variants.variant import Variant


def test_the_family_has_as_many_variants_of_each_architecture_as_table_8_says():
    counts = Counter(each.architecture for each in family())
    assert counts == {each.name: each.variants for each in ARCHITECTURES}
    assert len(counts) == 22
    assert sum(counts.values()) == len({each.name for each in family()}) == 175


def test_the_family_keeps_to_the_ranges_of_section_1():
    images = [each for each in family() if each.app == "classification"]
    single = [each.overhead + each.duration(1) for each in images]
    assert (min(single), max(single)) == (pytest.approx(0.0015, rel=0.01), pytest.approx(5.7, rel=0.01))
    loads = [each.load for each in family()]
    assert (min(loads), max(loads)) == (pytest.approx(0.59), pytest.approx(11, rel=0.01))
    assert (min(each.accuracy for each in images), max(each.accuracy for each in images)) == (0.566, 0.825)


@pytest.mark.parametrize(
    ("name", "latency", "rate", "cost"),
    [("tensorflow-cpu-1", 0.2, 5, 1), ("neuron-inferentia-1", 0.02, 100, 3), ("tensorrt-v100-8", 0.015, 800, 16)],
)
def test_resnet50_is_as_table_2_has_it(name, latency, rate, cost):
    found = next(each for each in family() if each.name == f"resnet50-{name}")
    assert (found.latency, found.rate, found.price) == tuple(map(pytest.approx, (latency, rate, cost)))
    per_gb = {"cpu": 0.031, "inferentia": 0.190, "v100": 0.498}[found.hardware]  # section 6.2
    assert found.memory / 1e9 * per_gb / 0.031 == pytest.approx(cost)


def test_every_variant_fits_on_a_host_of_the_family():
    for each in family():
        rooms = [host.has[each.hardware] for host in HOSTS.values() if each.hardware in host.has]
        assert any(each.units <= room.units and each.memory <= room.memory for room in rooms), each.name


def test_a_larger_batch_takes_longer_and_serves_no_fewer():
    trt = sorted((each for each in of("ResNet50") if "tensorrt" in each.name), key=lambda each: each.batch)
    assert [each.batch for each in trt] == [1, 2, 4, 8, 16, 32, 64]
    assert all(a.latency < b.latency and a.rate < b.rate for a, b in itertools.pairwise(trt))


def test_a_variant_without_a_cost_says_so():
    bare = family()[0].model_copy(update={"cost": None})
    with pytest.raises(SpecError, match="has no cost; give 'cost'"):
        _ = bare.price


def test_a_saturation_rate_that_was_measured_stands_before_one_that_is_reckoned():
    assert Variant.model_validate(family()[0].model_dump() | {"saturation": 3.5}).rate == 3.5
