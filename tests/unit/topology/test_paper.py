"""The JSON form of PARD's artifact."""

import json

import pytest

from spillway.topology.load import load, parse
from spillway.topology.spec import EmulatedSpec


def document(*modules, **head):
    names = [name for name, *_ in modules]
    ids = {name: number for number, name in enumerate(names)}
    return {
        "pipeline": "da",
        "slo_ms": 420.0,
        **head,
        "modules": [
            {
                "name": name,
                "id": ids[name],
                "pres": [ids[other] for other in pres],
                "subs": [ids[other] for other, before in modules if name in before],
                "alpha_ms": 20.0,
                "beta_ms": 7.0,
                "batch": 4,
            }
            for name, pres in modules
        ],
    }


DIAMOND = document(("person", []), ("pose", ["person"]), ("face", ["person"]), ("expression", ["pose", "face"]))


@pytest.mark.parametrize("indent", [None, 1, "\t"])
def test_it_becomes_a_pipeline_of_emulated_stages(tmp_path, indent):
    file = tmp_path / "da.json"
    file.write_text(json.dumps(DIAMOND, indent=indent))
    pipeline = load(file)
    spec = pipeline.spec
    assert (spec.name, spec.slo, spec.partitions) == ("da", 0.42, 12)
    assert pipeline.graph.predecessors == {
        "person": (),
        "pose": ("person",),
        "face": ("person",),
        "expression": ("pose", "face"),
    }
    stage = spec.stage("pose")
    assert stage.emulated == EmulatedSpec(alpha=0.02, beta=0.007)
    assert (stage.batching.size, stage.batching.max, stage.model) == (4, 64, None)
    assert stage.emulated.duration(4) == pytest.approx(0.048)


def test_it_may_say_partitions_and_what_several_sinks_mean():
    data = document(("a", []), ("b", ["a"]), ("c", ["a"]), partitions=4, sinks="all")
    spec = parse(json.dumps(data)).spec
    assert (spec.partitions, spec.sinks) == (4, "all")


def test_a_large_planned_batch_is_allowed():
    data = document(("a", []))
    data["modules"][0]["batch"] = 100
    (stage,) = parse(json.dumps(data)).spec.stages
    assert (stage.batching.size, stage.batching.max) == (100, 100)


@pytest.mark.parametrize("left_out", ["pres", "subs"])
def test_predecessors_or_successors_are_enough(left_out):
    data = document(("a", []), ("b", ["a"]), ("c", ["a", "b"]))
    for module in data["modules"]:
        del module[left_out]
    graph = parse(json.dumps(data)).graph
    assert graph.predecessors == {"a": (), "b": ("a",), "c": ("a", "b")}
