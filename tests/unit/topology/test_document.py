"""Files as plain values: how scalars are read, what is bounded, and that nothing but one error ever comes out."""

import json
import math

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from spillway.lineage.errors import SpecError
from spillway.topology.load import parse
from spillway.topology.problems import InvalidPipelineError, Place
from spillway.topology.reading.document import MAX_VALUES, Document


def value(text: str):
    document = Document("p.yaml", text)
    assert document.findings == []
    return document.value


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("no", "no"),
        ("on", "on"),
        ("010", 10),
        ("1:30", "1:30"),
        ("2024-01-31", "2024-01-31"),
        ("1_000", "1_000"),
        ("0x1F", 31),
        ("0o17", 15),
        ("-3", -3),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("true", True),
        ("~", None),
        ("", None),
        ("'12'", "12"),
        ('"true"', "true"),
        ("9" * 50, "9" * 50),
        ("-.inf", -math.inf),
        ("!!str x", "x"),
    ],
)
def test_scalars_are_read_as_in_yaml_1_2(text, read):
    found = value(f"[{text}]" if text else "- ")[0]
    assert found == read
    assert type(found) is type(read)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(JSON, st.sampled_from([None, 1]))
def test_json_is_read_as_json(data, indent):
    text = json.dumps(data, indent=indent)
    found = value(text)
    if isinstance(data, (dict, list)):
        assert json.dumps(found) == json.dumps(data)


def test_places_of_values_keys_and_what_is_missing():
    document = Document("p.yaml", "name: p\nstages:\n  - name: a\n    after: [b,\n      c]\n")
    assert document.place(("stages", 0, "after", 1)) == Place(5, 7, "stages[0].after[1]")
    assert document.place(("stages", 0, "after")) == Place(4, 12, "stages[0].after")
    assert document.place(("stages", 0, "after"), on_key=True) == Place(4, 5, "stages[0].after")
    assert document.place(("stages", 0, "model")) == Place(3, 5, "stages[0].model")
    assert document.place(("stages", 7, "model"), on_key=True) == Place(3, 3, "stages[7].model")
    assert document.place(("slo",)) == Place(1, 1, "slo")


def test_an_alias_stands_for_its_value():
    assert value("a: &x {n: 1}\nb: [*x, *x]\n") == {"a": {"n": 1}, "b": [{"n": 1}, {"n": 1}]}


def test_a_bomb_of_aliases_is_bounded():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 20)]
    with pytest.raises(InvalidPipelineError, match=f"the file has more than {MAX_VALUES} values"):
        Document("p.yaml", "\n".join(lines))


def test_an_alias_of_itself_is_refused():
    with pytest.raises(InvalidPipelineError, match="nested more than 32 deep"):
        Document("p.yaml", "x: &a [*a]")


def test_half_of_a_surrogate_pair_is_refused():
    assert value(json.dumps("\U0001f600")) == "\U0001f600"
    (finding,) = Document("p.yaml", '"\\ud800"').findings
    assert str(finding) == "p.yaml:1:1: contains an unpaired surrogate, which is not a character; remove it"


def test_keys_that_are_no_names():
    document = Document("p.yaml", "{[1]: 2, null: 3, 1.5: 4, true: 5, 6: 7}")
    assert document.value == {"null": 3, "1.5": 4, "true": 5, 6: 7}
    assert [str(each) for each in document.findings] == [
        "p.yaml:1:2: a key must be text or a number, not a list or mapping"
    ]


# Nothing but one error ever comes out ---------------------------------------------------------------------------------

FIELDS = st.sampled_from(
    [
        *("name", "slo", "partitions", "sinks", "limits", "stages", "model", "emulated", "after", "join", "choose"),
        *("split", "batching", "workers", "state", "size", "max", "queue", "table", "alpha", "inputs", "dtype"),
        *("shape", "mode", "x", "1", "<<", "pipeline", "arguments", "max_rank", "a"),
    ]
)
LEAVES = (
    st.sampled_from(["a", "b", "m:M", "400ms", "all", "any", "partial", "float32", "", "8MiB", "cpu", "-1s", "9" * 60])
    | st.integers(-2, 70)
    | st.none()
    | st.booleans()
    | st.floats()
    | st.text(max_size=5)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS | st.integers(0, 9), inner, max_size=6),
    max_leaves=25,
)
STAGE = st.dictionaries(FIELDS, VALUES, max_size=6) | st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "b", "c"]), "model": st.just("m:M")}, optional={"after": VALUES, "join": VALUES}
)
PIPELINE = st.fixed_dictionaries(
    {"name": LEAVES, "slo": LEAVES, "stages": st.lists(STAGE, max_size=4) | VALUES},
    optional={"limits": VALUES, "sinks": LEAVES, "partitions": LEAVES},
)


@given(PIPELINE | VALUES)
def test_any_values_give_a_pipeline_or_one_error(data):
    _parse(yaml.safe_dump(data, allow_unicode=True))


@given(st.text(max_size=60) | st.text("[]{}:,-&*!|>'\"% \n\t#ab1?", max_size=60))
def test_any_text_gives_a_pipeline_or_one_error(text):
    _parse(text)


def _parse(text: str) -> None:
    try:
        parse(text)
    except SpecError as error:
        told = error
    else:
        return
    assert isinstance(told, InvalidPipelineError)
    assert told.findings
    assert all(finding.place.line >= 1 and finding.place.column >= 1 for finding in told.findings)
