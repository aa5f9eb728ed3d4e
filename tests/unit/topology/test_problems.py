"""Every problem that a pipeline file can have: its line, its column, its path, and what to do about it.

The long ones are files in `invalid/`, each with the text of its error beside it.
"""

from pathlib import Path

import pytest

from spillway.lineage.errors import SpecError
from spillway.topology.load import load, parse
from spillway.topology.problems import InvalidPipelineError

HEAD = "name: p\nslo: 1s\nstages:\n"


def problems(text: str) -> list[str]:
    """What is wrong with a file, without its name and indentation."""
    with pytest.raises(InvalidPipelineError) as caught:
        parse(text, "p.yaml")
    found = [str(finding).removeprefix("p.yaml:") for finding in caught.value.findings]
    count = len(found)
    assert str(caught.value).splitlines()[0] == f"p.yaml has {count} problem{'s' if count > 1 else ''}:"
    return found


def stages(*lines: str, head: str = "name: p\nslo: 1s\n") -> list[str]:
    return problems(head + "stages:\n" + "".join(f"  - {line}\n" for line in lines))


INVALID = Path(__file__).parent / "invalid"


@pytest.mark.parametrize("golden", sorted(INVALID.glob("*.txt")), ids=lambda file: file.stem)
def test_all_that_is_wrong_with_a_file(golden, monkeypatch):
    """Each file in `invalid/` has the error's whole text beside it."""
    monkeypatch.chdir(INVALID)
    (file,) = (other for other in Path().glob(f"{golden.stem}.*") if other.suffix != ".txt")
    with pytest.raises(InvalidPipelineError) as caught:
        load(file)
    assert f"{caught.value}\n" == golden.read_text()


NO_DOCUMENT = {
    "": "1:1: the file is empty; begin with 'name: ...'",
    "# only a comment\n": "1:1: the file is empty; begin with 'name: ...'",
    "[1, 2]": "1:1: a pipeline file is a mapping with name, slo and stages, not a list",
    "plates": "1:1: a pipeline file is a mapping with name, slo and stages, not 'plates'",
    "a: b: c\n": "1:5: this is not valid YAML: mapping values are not allowed here",
    "- [\n": "2:1: this is not valid YAML: while parsing a flow node, expected the node content, but found '<stream "
    "end>'",
    "a: *b\n": "1:4: this is not valid YAML: found undefined alias 'b'",
    "name: p\n---\nname: q\n": (
        "2:1: this is not valid YAML: expected a single document in the stream, but found another document (which "
        "begins in line 1)"
    ),
    "name: \x01\n": "1:7: the character '\\x01' is not allowed in YAML; remove it",
    "[" * 40: "1:33: this is not valid YAML: values are nested more than 32 deep",
}


@pytest.mark.parametrize("text", NO_DOCUMENT, ids=range(len(NO_DOCUMENT)))
def test_a_file_that_is_no_document(text):
    assert problems(text) == [NO_DOCUMENT[text]]


def test_everything_is_missing():
    assert problems("{}") == [
        "1:1: name: is missing; name the pipeline, as in 'name: plates'",
        "1:1: slo: is missing; give the time within which a query must be answered, as in 'slo: 400ms'",
        "1:1: stages: is missing; list the stages, each with a name and a model",
    ]


@pytest.mark.parametrize(
    ("slo", "says"),
    {
        "0": "must be more than 0, not 0",
        "soon": "must be a duration, such as 0.4, '400ms', '2s' or '500us', not 'soon'",
        "4 hundred": "must be a duration, such as 0.4, '400ms', '2s' or '500us', not '4 hundred'",
        "1:30": "must be a duration, such as 0.4, '400ms', '2s' or '500us', not '1:30'",
        "true": "must be a duration, such as 0.4, '400ms', '2s' or '500us', not true",
        "": "must be a duration, such as 0.4, '400ms', '2s' or '500us', not nothing",
        "[1]": "must be a duration, such as 0.4, '400ms', '2s' or '500us', not a list",
        ".inf": "must be a finite duration, not inf",
        ".nan": "must be a finite duration, not nan",
        "1e300": "must be at most 1e+12 s, not 1e+300 s",
        "999999999999999999h": "must be at most 1e+12 s, not 3.6e+21 s",
    }.items(),
)
def test_a_duration_that_is_none(slo, says):
    found = problems(f"slo: {slo}\nname: p\nstages: [{{name: a, model: 'm:A'}}]\n")
    assert found == [f"1:{6 if slo else 5}: slo: {says}"]


def test_a_batch_size_in_quotes():
    of = "{one: {model: 'm:A', architecture: a, accuracy: 1, takes: {'1': 1ms, 0: 1s}}}"
    assert stages(f"{{name: a, variants: {{app: x, of: {of}}}}}") == [
        "4:97: stages[0].variants.of.one.takes.1: must be a whole number, not '1'; write it without quotes",
        "4:107: stages[0].variants.of.one.takes[0]: must be at least 1, not 0",
    ]


def test_a_stage_that_cannot_be_called_so_is_told_once():
    (told,) = stages("{name: gate, model: 'm:A'}", "{name: b, model: 'm:A', after: gate}")
    assert told.startswith("4:12: stages[0].name: 'gate' is reserved for a topic")


def test_a_variant_without_an_accuracy():
    of = "{one: {model: 'm:A', architecture: a, takes: {1: 1ms}}}"
    (told,) = stages(f"{{name: a, variants: {{app: x, of: {of}}}}}")
    place, _, text = told.partition("accuracy: ")
    assert place == "4:44: stages[0].variants.of.one."
    assert text == "is missing; give its share of right answers (0 to 1) on validation data, as in .93"


def test_limits_that_no_message_can_have():
    found = stages("{name: a, model: 'm:A'}", head="name: p\nslo: 1\nlimits:\n  max_rank: 65\n")
    assert found == ["4:13: limits.max_rank: limit max_rank must be at most 64, not 65"]
    found = stages("{name: a, model: 'm:A'}", head="name: p\nslo: 1\nlimits: {max_rank: 65, max_depth: 999}\n")
    assert [line.split(": limit ")[0] for line in found] == ["3:20: limits.max_rank", "3:35: limits.max_depth"]


def test_more_stages_than_a_query_can_tell_the_times_of():
    lines = [f"{{name: s{n}, model: 'm:A', after: s{n - 1}}}" if n else "{name: s0, model: 'm:A'}" for n in range(3)]
    found = stages(*lines, head="name: p\nslo: 1\nlimits: {max_timings: 2}\n")
    assert found == ["4:1: stages: there are 3 stages, but a query carries timings of 2; raise limits.max_timings"]


def test_stages_that_are_no_list_of_stages():
    head = "name: p\nslo: 1s\n"
    assert problems(head + "stages: []") == ["3:9: stages: is empty; a pipeline has at least one stage"]
    assert problems(head + "stages: {a: 1}") == ["3:9: stages: must be a list, not a mapping"]
    assert stages("detect") == ["4:5: stages[0]: a stage must be a mapping with a name and a model, not 'detect'"]
    assert stages("{model: 'm:A'}") == ["4:5: stages[0].name: is missing; name the stage, as in 'name: detect'"]


def test_a_section_of_which_one_value_was_written_is_told_which():
    assert stages("{name: a, model: 'm:A', workers: 4, batching: 16, cache: 64MB}") == [
        "4:38: stages[0].workers: must be a mapping, not 4; write 'workers: {count: 4}'",
        "4:51: stages[0].batching: must be a mapping, not 16; write 'batching: {max: 16}'",
        "4:62: stages[0].cache: must be a mapping, not '64MB'; write 'cache: {bytes: 64MB}'",
    ]
    one = "{model: 'm:A', architecture: a, accuracy: .5, takes: 20ms}"
    (found,) = stages(f"{{name: a, variants: {{app: x, of: {{one: {one}}}}}}}")
    assert found.endswith("of.one.takes: must be a mapping, not '20ms'; write 'takes: {1: 20ms}'")


def test_a_table_of_durations_that_is_none():
    assert stages("{name: a, emulated: {table: {}}}") == [
        "4:33: stages[0].emulated.table: is empty; give at least the duration of a batch of 1"
    ]
    assert stages("{name: a, emulated: {table: {1: 0, x: 2ms}}}") == [
        "4:33: stages[0].emulated.table: its keys must be batch sizes, whole numbers of at least 1, not 'x'"
    ]
    assert stages("{name: a, emulated: {table: {1: 0}}}") == [
        "4:37: stages[0].emulated.table[1]: must be more than 0, not 0"
    ]
    assert stages("{name: a, emulated: {table: {1: 1ms, '1': 2ms}}}") == [
        "4:33: stages[0].emulated.table: batch size 1 is given twice; keep one"
    ]


@pytest.mark.parametrize("name", ["a b", "ä", "-a", "", "a/b", "a:b", "a.b", ".."])
def test_names_that_are_no_names_of_topics(name):
    (found,) = stages(f"{{name: '{name}', model: 'm:A'}}")
    assert found.startswith(f"4:12: stages[0].name: {name!r} cannot be part of a Kafka topic name;")


def test_only_consequences_of_a_wrong_edge_are_left_out():
    found = stages(
        "{name: a, model: 'm:A'}", "{name: b, model: 'm:A', after: [c]}", "{name: d, model: 'm:A', after: a}"
    )
    assert found == ["5:37: stages[1].after[0]: there is no stage 'c'; known: a, b, d"]


def test_a_mapping_that_needs_an_entry_and_has_none_is_told():
    found = stages("{name: a, variants: {app: x, hosts: {}}}", "{name: b, variants: {app: x, hosts: {k: {price: 1}}}}")
    assert [problem.partition(": ")[2].partition(": ")[2] for problem in found if ".hosts" in problem] == [
        "is empty; give it at least one entry",
        "is missing; give what one such host has, as in 'has: {core: {units: 4}}'",
    ]


@pytest.mark.parametrize(
    ("app", "says"),
    {"": "is empty; write at least one character", "x" * 201: "is too long; shorten it to 200 characters"}.items(),
    ids=["empty", "long"],
)
def test_a_text_of_no_length_that_it_may_have(app, says):
    found = stages(f"{{name: a, variants: {{app: '{app}'}}}}")
    assert found == [f"4:31: stages[0].variants.app: {says}"]


@pytest.mark.parametrize("value", ["-1", "maybe", "'yes'"])
def test_what_is_neither_true_nor_false(value):
    (found,) = stages(f"{{name: a, model: 'm:A', coding: {{k: 2, parity: p, shared: {value}}}}}")
    assert found == f"4:63: stages[0].coding.shared: must be true or false, not {value}".replace("maybe", "'maybe'")


def test_many_problems_are_cut_short():
    with pytest.raises(SpecError) as caught:
        parse(HEAD + "  - 1\n" * 60)
    lines = str(caught.value).splitlines()
    assert lines[0] == "pipeline.yaml has 60 problems:"
    assert len(lines) == 52
    assert lines[-1] == "  ... and 10 more"


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(SpecError, match=r"cannot read the pipeline file .*none\.yaml: No such file or directory"):
        load(tmp_path / "none.yaml")
    with pytest.raises(SpecError, match=r"cannot read the pipeline file .*: Is a directory"):
        load(tmp_path)


def test_a_file_that_is_too_large_or_no_text(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_bytes(b"#" * (256 * 1024 + 1))
    with pytest.raises(SpecError, match="is larger than 262144 bytes; is it a pipeline file"):
        load(file)
    file.write_bytes(b"name: p\nslo: \xff\n")
    with pytest.raises(SpecError, match=r"p\.yaml:2: this is not UTF-8 text: save the file as UTF-8"):
        load(str(file))


def test_an_error_names_the_file_as_the_user_did(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "p.yaml").write_text("name: p\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError, match=r"^sub/p\.yaml has 2 problems:\n  sub/p\.yaml:1:1: slo: is missing"):
        load(Path("sub/p.yaml"))


DEFAULTS = {
    "default: {}": "is empty; give the outputs for queries that are not answered in time, as in ",
    "default: {y: 1}": "has no 'x', which stage 'b' needs; add it",
    "default: {x: [1, 2]}": "'x' is list, and stage 'b' takes float32 [2]; write a tensor as {dtype: ",
    "default: {x: {dtype: float32, data: [1]}}": "'x' is float32 [1], and stage 'b' takes float32 [2]; ",
    "default: {x: {dtype: flat, data: [1]}}": "cannot be sent: ",
    "default: {x: [{y: {1: 2}}]}": "cannot be sent: 'x': 'y': a name must be a string, not 1",
    "default: {x: 1}, state: shared": "a model with a state must process every query, so the stage always waits for "
    "it; drop 'default'",
}


@pytest.mark.parametrize("default", DEFAULTS)
def test_default_outputs_that_no_query_can_get(default):
    behind = "{name: b, model: 'm:A', after: a, inputs: {x: {dtype: float32, shape: [2]}}}"
    (found,) = stages(f"{{name: a, model: 'm:A', {default}}}", behind)
    assert found.startswith(f"4:29: stages[0].default: {DEFAULTS[default]}")
    joined = "{name: c, model: 'm:A', after: [a, z], inputs: {a.x: {dtype: int}}}"
    (found,) = stages("{name: a, model: 'm:A', default: {y: 1}}", "{name: z, model: 'm:A'}", joined)
    assert found.endswith("stages[0].default: has no 'x', which stage 'c' needs; add it")


def test_default_outputs_over_the_pipelines_own_limits():
    small = "name: p\nslo: 1s\nlimits: {max_message_bytes: 1024}\n"
    (found,) = stages(f"{{name: a, model: 'm:A', default: {{x: {'y' * 1100}}}}}", head=small)
    assert "stages[0].default: cannot be sent: a message of" in found
    assert "over the limit of 1024" in found
    wrong = "name: p\nslo: 1s\nlimits: {max_rank: 65}\n"
    (found,) = stages("{name: a, model: 'm:A', default: {x: y}}", head=wrong)
    assert "limits.max_rank: " in found


def test_default_outputs_that_fit():
    parse(
        HEAD + "  - {name: a, model: 'm:A', default: {x: {dtype: float32, data: [1, 2]}, y: none}}\n"
        "  - {name: b, model: 'm:A', after: a, inputs: {x: {dtype: float32, shape: [2]}}}\n"
    )


def test_inputs_that_cannot_be_summed():
    (found,) = stages("{name: a, model: 'm:A', coding: {k: 2, parity: p}, inputs: {x: {dtype: int64}}}")
    assert found.endswith("input 'x' is int64, and only floats can be summed; send float32")


ENSEMBLES = {
    "model: 'm:A', ensemble: {members: {a: {model: 'm:A'}}}": ".model: does not apply to a stage with an ensemble",
    "state: keyed, ensemble: {members: {a: {model: 'm:A'}}}": ".state: does not apply to a stage with an ensemble",
    "cache: {bytes: 4MB}, ensemble: {members: {a: {model: 'm:A'}}}": ".cache: does not apply to a stage with an ",
    "workers: {count: 3}, ensemble: {members: {a: {model: 'm:A'}}}": ".workers.count: each member has workers of its ",
    "ensemble: {members: {}}": ".ensemble.members: ",
    "ensemble: {selection: exp3}": ".ensemble.members: is missing; name the models, as in ",
    "ensemble: {members: {a: {arguments: {}}}}": ".ensemble.members.a.model: is missing; name its class",
    "ensemble: {members: {a: {modle: 'm:A', model: 'm:A'}}}": ".ensemble.members.a.modle: there is no such field; ",
    "ensemble: {members: {a: {model: 'm:A', cache: {}}}}": (
        ".ensemble.members.a.cache.bytes: is missing; say how much memory answers may take, as in 'cache: {bytes: "
        "64MB}'"
    ),
    "ensemble: {members: {a: {model: 'm:A', cache: {byts: 4MB, bytes: 4MB}}}}": (
        ".ensemble.members.a.cache.byts: there is no such field; did you mean 'bytes'?"
    ),
    "ensemble: {members: {a: {model: 'm:A', cache: {bytes: much}}}}": ".ensemble.members.a.cache.bytes: ",
    "ensemble: {threshold: .5, members: {a: {model: 'm:A'}}}": ".ensemble.threshold: needs a default to fall back to",
    "ensemble: {wait: 9s, members: {a: {model: 'm:A'}}}": ".ensemble.wait: is not shorter than the SLO, ",
    "ensemble: {selection: {eta: 1}, members: {a: {model: 'm:A'}}}": ".ensemble.selection: needs a name, as in ",
    "ensemble: {members: {a: {model: 'm:A', workers: {fronts: 2}}}}": ".a.workers.fronts: belongs to the stage; write",
    "workers: {fronts: 2}, ensemble: {members: {a: {model: 'm:A', workers: {count: 1}}}}": (
        ".ensemble.members.a.workers.count: each of the stage's 2 fronts needs one; write 'count: 2' or more"
    ),
}


@pytest.mark.parametrize("ensemble", ENSEMBLES)
def test_ensembles_that_do_not_fit(ensemble):
    (found,) = stages(f"{{name: a, {ensemble}}}")
    assert ENSEMBLES[ensemble] in found
