"""What a learner goes by: the newest of what its owners' log says, whatever else stands there."""

import json
from types import SimpleNamespace

from hypothesis import example, given
from hypothesis import strategies as st

from spillway.agents.live.stateful.control import HeldGenerations, Sections, control_of
from spillway.producers.connection import ClientSettings
from spillway.topology.ensembles import Served, encode
from spillway.topology.load import parse
from spillway.topology.sections import EnsembleSpec
from tests.unit.topology.test_acls import ALL

NOWHERE = ClientSettings(bootstrap="127.0.0.1:1")
PARENT = parse(ALL)
SECTION = PARENT.spec.stage("kind").ensemble


def record(epoch, digest=PARENT.frame, **more):
    told = json.loads(encode(Served(SECTION, "me", "", 0.0, epoch, digest, "file")))
    return json.dumps(told | more).encode()


records = st.tuples(
    st.sampled_from([b"kind/.ensemble"] * 3 + [b"rank/.ensemble", b"kind/a", b"", b"\xff"]),
    st.builds(record, st.integers(-1, 6), st.sampled_from([PARENT.frame] * 3 + ["another"]))
    | st.builds(lambda odd: record(9, section=odd), st.sampled_from([None, {}, {"members": 3}, [], "x"]))
    | st.binary()
    | st.none(),
)


@given(st.lists(records, max_size=12))
def test_a_section_is_the_newest_of_the_file_and_epochs_never_fall(written):
    control, epochs = Sections(NOWHERE, PARENT, "kind", None), [0]
    for key, value in written:
        control.log._heard(key, value)
        if (served := control.now()) is not None:
            assert isinstance(served.section, EnsembleSpec)
            assert served.digest == PARENT.frame
            epochs.append(served.epoch)
    assert epochs == sorted(epochs)


odd = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda each: st.lists(each, max_size=2))
events = st.fixed_dictionaries(
    {"event": st.sampled_from(["asked", "trained", "kept", "failed", "switched", "current"]) | odd},
    optional={"generation": st.integers(0, 4) | odd, "theta": st.text(max_size=3) | odd},
)


@example([b'{"event": "asked"}', b'{"event": [], "generation": 1}'])
@given(st.lists(events.map(json.dumps).map(str.encode) | st.binary() | st.none(), max_size=20))
def test_generations_to_hold_are_those_that_the_log_comes_to_once_it_is_read(written):
    control, highest = HeldGenerations(NOWHERE, "p-taste", None), 0
    for number, value in enumerate(written):
        control.log._heard(b"event/%d" % number, value)
        assert control.now() == {}  # it is still being read
        control.log._table._read.set()
        held = control.now()
        control.log._table._read.clear()
        assert 1 <= len(held) <= 2
        assert held.get("0", "") == ""
        highest = max(highest, *map(int, held))
    assert highest <= len(written)


def test_learners_have_the_control_of_their_owners_and_other_stages_none():
    kinds = {}
    for pipeline in (PARENT, *PARENT.learners):
        for stage in pipeline.spec.stages:
            config = SimpleNamespace(pipeline=pipeline, stage=stage.name, spec=stage, settings=NOWHERE)
            kinds[stage.name] = type(control_of(config, None))
    assert {name for name, kind in kinds.items() if kind is not type(None)} == {"kind-weights", "taste"}
    assert (kinds["kind-weights"], kinds["taste"]) == (Sections, HeldGenerations)
