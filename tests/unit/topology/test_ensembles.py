"""The records of ensembles as they are served: which of a file and a record counts, and what may follow one."""

import json
from dataclasses import replace

import pytest

from spillway.lineage.errors import CheckpointError
from spillway.topology.ensembles import (
    decode,
    differing,
    encode,
    follow,
    from_file,
    in_effect,
    is_record,
    record_key,
    refusals,
    section_digest,
)
from spillway.topology.load import parse
from spillway.topology.sizes import from_file as sizes_of
from spillway.topology.sizes import key_of

FILE = """
name: p
slo: 1s
stages:
  - name: kind
    default: {label: 0}
    workers: {fronts: 2}
    ensemble:
      selection: {name: exp3, eta: .2}
      wait: 30ms
      members:
        a: {model: "m:A", arguments: {deep: {er: [1, 2.5]}}, workers: {count: 2, timeout: 2s}}
        b: {model: "m:B", batching: {limit: aimd, objective: 20ms}, workers: {count: 2}}
  - {name: rank, after: kind, model: "m:R"}
"""
KEY = record_key("kind")


def changed(*pairs, of=FILE):
    for old, new in pairs:
        assert old in of
        of = of.replace(old, new)
    return parse(of)


PIPELINE = parse(FILE)
MORE = changed(("        b: ", "        c: {model: 'm:C', workers: {count: 2}}\n        b: "))
SERVED = from_file(PIPELINE, {}, "ada@host", 1_700_000_000.5, 4)[KEY]


def section(pipeline):
    return pipeline.spec.stage("kind").ensemble


def test_a_record_is_read_as_it_was_written_and_has_a_key_that_no_member_has():
    served = replace(SERVED, counts={"a": 3})
    assert decode(encode(served)) == served
    assert is_record(KEY)
    assert not is_record(key_of("kind", "ensemble"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"epoch": 0}, "epoch: "),
        ({"who": None}, "who: "),
        ({"counts": {"a": 0}}, "counts.a: "),
        ({"parts": None}, "parts: "),
        ({"section": {"members": {"a": {}}}}, "section.members.a.model: "),
        ({"section": None}, "section: "),
    ],
)
def test_a_record_that_is_none_is_refused_with_what_is_wrong(change, said):
    with pytest.raises(CheckpointError, match=said):
        decode(json.dumps({**json.loads(encode(SERVED)), **change}).encode())
    with pytest.raises(CheckpointError, match="Invalid JSON"):
        decode(b"{")


def test_a_file_goes_on_with_the_record_unless_its_section_is_another_than_when_it_began():
    def begun(pipeline, record):
        found = from_file(pipeline, {KEY: record}, "x", 1.0, 1)
        return found[KEY] if found else None

    assert begun(PIPELINE, SERVED) is None
    after = follow(SERVED, section(MORE), "bob", "more", 2.0, 7)
    assert begun(PIPELINE, after) is None  # the file that was served
    edited = begun(MORE, after)  # the one that was applied: the same, and from now on it is the file's
    assert (edited.section, edited.file, edited.epoch) == (section(MORE), section_digest(section(MORE)), 8)
    other = changed(("eta: .2", "eta: .5"))
    assert begun(other, after).section == section(other)
    assert begun(changed(("slo: 1s", "slo: 2s")), after).section == section(PIPELINE)


def test_the_table_says_what_is_in_effect_where_it_is_of_the_same_file():
    after = follow(replace(SERVED, counts={"a": 4}), section(MORE), "bob", "", 2.0, 7)
    for pipeline in (PIPELINE, MORE):
        stage = in_effect(pipeline.spec, pipeline.frame, {KEY: after}).stage("kind")
        assert {name: stage.member(name).workers.of_front(0) for name in stage.lanes} == {"a": 2, "b": 1, "c": 1}
    other = changed(("slo: 1s", "slo: 2s"))
    assert in_effect(other.spec, other.frame, {KEY: after}) == other.spec


def test_sizes_go_with_the_file_but_for_its_ensembles():
    there = sizes_of(PIPELINE, {}, "x", 1.0, 1)
    assert sizes_of(MORE, there, "x", 1.0, 1) == {}
    plain = parse("{name: p, slo: 1, stages: [{name: a, model: 'm:M'}]}")
    assert plain.frame == plain.digest


def test_what_else_differs_is_named():
    other = changed(("slo: 1s", "slo: 2s"), ("m:R", "m:S"), ("{label: 0}", "{label: 1}"), ("eta: .2", "eta: .5"))
    assert differing(SERVED, other) == ["slo", "stage 'kind': default", "stage 'rank': model"]
    assert differing(SERVED, MORE) == []


def test_a_member_that_was_scaled_stays_so_unless_the_file_says_something_else_of_it():
    scaled = replace(SERVED, counts={"a": 4, "b": 6})
    assert follow(scaled, section(MORE), "x", "", 1.0, 5).counts == {"a": 4, "b": 6}
    own = changed(("objective: 20ms}, workers: {count: 2}", "objective: 20ms}, workers: {count: 3}"))
    assert follow(scaled, section(own), "x", "", 1.0, 5).counts == {"a": 4}


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([("exp3, eta: .2", "exp4")], None),
        ([("wait: 30ms", "threshold: .5")], None),
        ([("count: 2, timeout", "count: 3, timeout")], None),
        ([("        b: ", "        c: ")], None),
        ([("m:A", "m:Z")], "member 'a' has other fields"),
        ([("timeout: 2s", "timeout: 3s")], "member 'a' has other fields"),
        ([("objective: 20ms", "objective: 30ms")], "member 'b' has other fields"),
        ([("exp3, eta: .2", "epsilon")], "keeps other numbers of each member"),
        ([("exp3, eta: .2", "uniform")], "a learner comes, or goes, with it"),
        ([("wait: 30ms", "learn: false")], "'learn' is False, and it was True"),
        ([("wait: 30ms", "answer: kind")], "'answer' is 'kind'"),
        ([("wait: 30ms", "context: key")], "'context' is 'key'"),
        ([("wait: 30ms", "loss: absolute")], "'loss' is 'absolute'"),
    ],
)
def test_what_may_follow_while_it_serves(pairs, said):
    found = list(refusals(section(PIPELINE), section(changed(*pairs))))
    assert found == [] if said is None else (len(found) == 1 and said in found[0])
