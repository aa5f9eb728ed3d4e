"""Registered variants become a stage's, and new ones take the place of old ones that serve."""

import pytest

from spillway.lineage.errors import SpecError
from spillway.topology import names
from spillway.topology.variant_sections import VariantsSpec
from spillway.topology.variants.manifest import Generated, Manifest, decode, encode, newest, section_of
from spillway.topology.variants.renewal import Renewal
from tests.unit.topology.measured import profile

SECTION = VariantsSpec(app="digits")


def variant(key, one=0.001, sixteen=0.004, **more):
    told = {"format": key, "file": f"{key}.pt2", "size": 10, "accuracy": 0.9}
    return Generated(key=key, **told | {"profile": profile(load=2.0, b1=one, b16=sixteen)} | more)


def manifest(name="cnn", version=1, keys=("eager", "bf16"), **more):
    told = {"app": "digits", "model": "m:f", "validation": "m:v", "validated": 10, "repository": "/r", "at": 1.0}
    told |= {"inputs": {"x": {"dtype": "float32", "shape": [64]}}, "by": "me"}
    made = [each if isinstance(each, Generated) else variant(each) for each in keys]
    return Manifest(name=name, version=version, variants=made, **told | more)


def test_a_manifest_is_read_as_it_was_written_and_another_is_refused():
    one = manifest()
    assert decode(encode(one)) == one
    with pytest.raises(SpecError, match="app"):
        decode(b'{"spillway-model": 1}')


def test_a_stage_has_the_newest_version_of_each_model_of_its_application():
    told = [
        manifest(),
        manifest(version=2),
        manifest("mlp", keys=[variant("int8", sixteen=0.005)]),
        manifest("x", app="y"),
    ]
    section = section_of(SECTION, told)
    assert set(section.of) == {"cnn-v2-eager", "cnn-v2-bf16", "mlp-v1-int8"}
    assert {name: each.workers.count for name, each in section.of.items() if each.workers.count} == {"cnn-v2-bf16": 1}
    eager = section.of["cnn-v2-eager"]
    assert (eager.architecture, eager.version, eager.batch, eager.load) == ("cnn", "2", 16, 2.0)
    assert eager.takes == {1: 0.001, 16: 0.004}
    assert eager.saturation == 4_000
    assert eager.arguments["repository"] == "/r"
    elsewhere = section_of(SECTION.model_copy(update={"repository": "/mnt"}), told)
    assert elsewhere.of["cnn-v2-eager"].arguments["repository"] == "/mnt"
    with pytest.raises(SpecError, match="spillway models register NAME MODEL --app digits"):
        section_of(SECTION, [manifest(app="faces")])


def test_a_version_that_is_taken_back_leaves_the_one_before_it():
    told = [manifest(), manifest(version=2, taken_back=True)]
    assert [each.version for each in newest(told).values()] == [1]


def test_the_batch_is_no_larger_than_brings_something():
    slow = variant("eager", profile=profile(b1=0.001, b2=0.0011, b4=0.0022))
    assert (slow.batch, round(slow.saturation)) == (2, 1818)


def test_new_variants_take_as_many_workers_as_the_old_ones_had_before_these_go():
    renewal = Renewal(section_of(SECTION, [manifest()]))
    target = section_of(SECTION, [manifest(), manifest(version=2)])
    assert renewal.is_news(target)
    assert renewal.begin(target, {"cnn-v1-bf16": 2, "cnn-v1-eager": 0}) == set()
    assert not renewal.is_news(target)
    assert renewal.needed == {"cnn-v2-bf16": 2}
    assert renewal.coming.of["cnn-v2-bf16"].workers.count == 2
    assert renewal.coming.of["cnn-v2-eager"].workers.count == 0
    assert not renewal.ready({"cnn-v1-bf16": 2, "cnn-v2-bf16": 1})
    assert renewal.ready({"cnn-v1-bf16": 2, "cnn-v2-bf16": 2})
    assert set(renewal.finish()) == {"cnn-v1-bf16", "cnn-v1-eager"}
    assert set(renewal.section.of) == {"cnn-v2-bf16", "cnn-v2-eager"}


def test_where_a_format_is_gone_the_fastest_of_the_new_version_takes_over():
    renewal = Renewal(section_of(SECTION, [manifest()]))
    quick = variant("onnx", one=0.0001, sixteen=0.001)
    renewal.begin(section_of(SECTION, [manifest(version=2, keys=["eager", quick])]), {"cnn-v1-bf16": 1})
    assert renewal.needed == {"cnn-v2-onnx": 1}


def test_another_model_changes_nothing_that_serves_and_waits_for_nothing():
    renewal = Renewal(section_of(SECTION, [manifest()]))
    renewal.begin(section_of(SECTION, [manifest(), manifest("mlp")]), {"cnn-v1-eager": 1})
    assert renewal.ready({})
    assert set(renewal.finish()) == set()
    assert renewal.section.of["cnn-v1-eager"].workers.count == 1


def test_where_all_that_serves_goes_something_else_is_loaded_first():
    renewal = Renewal(section_of(SECTION, [manifest()]))
    renewal.begin(section_of(SECTION, [manifest("mlp", keys=["eager"])]), {"cnn-v1-eager": 1})
    assert renewal.needed == {"mlp-v1-eager": 1}


def test_a_version_that_comes_while_another_loads_takes_its_place():
    renewal = Renewal(section_of(SECTION, [manifest()]))
    wanted = {"cnn-v1-eager": 1}
    renewal.begin(section_of(SECTION, [manifest(version=2)]), wanted)
    third = section_of(SECTION, [manifest(version=3)])
    assert renewal.is_news(third)
    assert set(renewal.begin(third, wanted | {"cnn-v2-eager": 1})) == {"cnn-v2-eager", "cnn-v2-bf16"}
    assert renewal.needed == {"cnn-v3-eager": 1}
    assert set(renewal.finish()) == {"cnn-v1-eager", "cnn-v1-bf16"}


def test_no_pipeline_may_take_the_tables_of_the_cluster_for_its_own():
    with pytest.raises(ValueError, match="give the pipeline another name"):
        names.pipeline_name("spillway")
