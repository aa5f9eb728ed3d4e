"""What clients are told that a pipeline takes and returns."""

import pytest

from spillway.agents.gateway.signature import Signature
from spillway.lineage.errors import WireError
from spillway.topology.load import parse

VARIANTS = "variants: {app: x, of: {v: {model: 'm:A', architecture: a, accuracy: .9, takes: {1: 1ms}}}}"


def signature(*stages, outputs=""):
    listed = "".join(f"  - {{{stage}}}\n" for stage in stages)
    return Signature.of(parse(f"name: p\nslo: 1s\nsinks: any\n{outputs}\nstages:\n{listed}").spec)


def root(name, inputs):
    return f"name: {name}, model: 'm:A', inputs: {inputs}"


def tensors(*stages):
    return {each.pop("name"): each for each in signature(*stages).metadata("1")["inputs"]}


def test_inputs_are_the_union_of_the_roots():
    one = root("a", "{x: {dtype: float32, shape: [3]}, y: {dtype: int}}")
    other = root("b", "{x: {dtype: float32, shape: [4]}, y: {dtype: float}, z: {dtype: str}}")
    behind = "name: c, model: 'm:A', after: [a, b], inputs: {w: {dtype: str}}"
    assert tensors(one, other, behind) == {
        "x": {"datatype": "FP32", "shape": [-1]},
        "y": {"datatype": "BYTES", "shape": [-1], "parameters": {"dtype": "any"}},
        "z": {"datatype": "BYTES", "shape": [1]},
    }


@pytest.mark.parametrize(
    ("declared", "told"),
    [
        ("{dtype: str}", {"datatype": "BYTES", "shape": [1]}),
        ("{dtype: bytes}", {"datatype": "BYTES", "shape": [1]}),
        ("{dtype: int}", {"datatype": "INT64", "shape": []}),
        ("{dtype: float}", {"datatype": "FP64", "shape": []}),
        ("{dtype: bool}", {"datatype": "BOOL", "shape": []}),
        ("{dtype: bool, shape: [3]}", {"datatype": "BOOL", "shape": [3]}),
        ("{dtype: list}", {"datatype": "BYTES", "shape": [1], "parameters": {"content_type": "json"}}),
        ("{dtype: dict}", {"datatype": "BYTES", "shape": [1], "parameters": {"content_type": "json"}}),
        ("{dtype: bfloat16, shape: [3, null, width]}", {"datatype": "BF16", "shape": [3, -1, -1]}),
        ("{dtype: uint8, shape: []}", {"datatype": "UINT8", "shape": []}),
        ("{shape: [64]}", {"datatype": "FP32", "shape": [64], "parameters": {"dtype": "any"}}),
        ("{}", {"datatype": "BYTES", "shape": [-1], "parameters": {"dtype": "any"}}),
    ],
)
def test_a_declared_input_as_the_protocol_has_it(declared, told):
    assert tensors(root("a", f"{{x: {declared}}}")) == {"x": told}


def test_a_complex_tensor_is_left_out():
    assert tensors(root("a", "{x: {dtype: complex64}, y: {dtype: int8}}")).keys() == {"y"}


def test_metadata():
    outputs = "outputs: {label: {dtype: str}}"
    assert signature("name: a, model: 'm:A'", outputs=outputs).metadata("7") == {
        "name": "p",
        "versions": ["7"],
        "platform": "spillway",
        "inputs": [],
        "outputs": [{"name": "label", "datatype": "BYTES", "shape": [1]}],
    }
    assert signature("name: a, model: 'm:A'").metadata("7")["outputs"] == []


def test_an_unknown_output_is_refused_where_the_file_declares_any():
    declared = signature("name: a, model: 'm:A'", outputs="outputs: {label: {dtype: str}}")
    declared.check_outputs(["label"])
    with pytest.raises(WireError, match="pipeline 'p' has no output 'lable'; did you mean 'label'"):
        declared.check_outputs(["lable"])
    signature("name: a, model: 'm:A'").check_outputs(["lable"])


def test_whether_a_query_may_say_what_it_needs():
    assert signature(f"name: a, {VARIANTS}").needs
    assert not signature("name: a, model: 'm:A'").needs


def test_a_learner_does_not_have_its_parents_outputs():
    text = "name: p\nslo: 1s\noutputs: {y: {dtype: str}}\nstages: [{name: a, model: 'm:A'}]\n"
    pipeline = parse(f"{text}learners: [{{name: taste, model: 'm:B', state: keyed, publish: true}}]\n")
    assert pipeline.spec.outputs
    assert pipeline.learner("taste").spec.outputs is None
