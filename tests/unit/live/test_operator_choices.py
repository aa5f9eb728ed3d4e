"""What an operator may name, and what an error says there is instead; files that are written whole or not at all."""

import re

import numpy as np
import pytest

from spillway.agents.cli.commands.state import newest_of, refuse_misfit
from spillway.agents.live.operator.changes import check_rewind
from spillway.agents.live.operator.histories import Histories, kept_version, place_of, stage_of, version_of
from spillway.checkpoint.logs import Fate
from spillway.checkpoint.version_log import key
from spillway.lineage.errors import CheckpointError, UsageError
from spillway.lineage.marks import INITIAL, Version
from spillway.lineage.ports import Record
from spillway.lineage.replication import Base, Beat, Claim, Fence, Manifest
from spillway.lineage.values.replication import ReplicationDecoder, encode
from spillway.topology.sections import StateSpec
from spillway.topology.spec import PipelineSpec, StageSpec

SPEC = PipelineSpec(
    name="p",
    slo=1,
    stages=(
        StageSpec(name="learn", model="m:M", state=StateSpec(kind="shared")),
        StageSpec(name="track", model="m:M", after=("learn",), state=StateSpec(kind="keyed", shards=3)),
        StageSpec(
            name="bare",
            model="m:M",
            after=("track",),
            state=StateSpec(kind="shared", replication="none"),
        ),
        StageSpec(name="tell", model="m:M", after=("bare",)),
    ),
)
LEARN = ("learn", 0)


def record_at(topic, name, value):
    return Record(topic, 0, 3, -1, log_append=False, key=name, value=value, headers=())


def logged(record):
    return record_at("p.learn.versions", key(record).encode(), encode(record))


@pytest.fixture
def histories():
    made = Histories(SPEC, ReplicationDecoder())
    chain = ((1, INITIAL),)
    for record in (
        Fence(1, "m"),
        Base(1, "m", INITIAL, chain),
        *(Manifest(Version(1, n), chain, claimant="m") for n in (1, 2, 3)),
    ):
        made.take(logged(record))
    made.reached(made.partitions)
    return made


@pytest.mark.parametrize("name", ["lern", "bare", "tell"])
def test_a_stage_without_a_log_is_refused_with_those_that_have_one(name):
    with pytest.raises(UsageError, match="those with a state in a log are: learn, track"):
        stage_of(SPEC, name)


def test_a_pipeline_without_states_says_so():
    spec = PipelineSpec(name="p", slo=1, stages=(StageSpec(name="tell", model="m:M"),))
    with pytest.raises(UsageError, match="no stage of this pipeline has one"):
        stage_of(spec, "tell")


def test_a_shard_must_be_named_where_there_are_several():
    assert place_of(SPEC, "learn", None) == ("learn", 0)
    assert place_of(SPEC, "track", 2) == ("track", 2)
    for shard in (None, 3, -1):
        with pytest.raises(UsageError, match="0 to 2"):
            place_of(SPEC, "track", shard)


@pytest.mark.parametrize("text", ["e5.v17", "5.17", "e5.17"])
def test_versions_as_they_are_written(text):
    assert version_of(text) == Version(5, 17)


@pytest.mark.parametrize("text", ["", "17", "e5v17", "e-1.v1", "e5.v17 ", "e٣.v1"])
def test_what_is_no_version(text):
    with pytest.raises(UsageError, match=r"write it as e5\.v17"):
        version_of(text)


def test_the_newest_durable_version_is_meant_where_none_is_named(histories):
    assert kept_version(histories, LEARN, None).version == Version(1, 3)
    assert kept_version(histories, LEARN, "1.2").standing is Fate.DURABLE
    with pytest.raises(UsageError, match=r"it has e1\.v1 \(durable\), e1\.v2 \(durable\), e1\.v3"):
        kept_version(histories, LEARN, "1.4")
    with pytest.raises(UsageError, match="no version yet"):
        kept_version(histories, ("track", 1), None)


def test_tombstones_other_records_and_other_peoples_are_no_versions(histories):
    gone = Manifest(Version(1, 1))
    assert histories.take(record_at("p.learn.versions", key(gone).encode(), None)) is None
    assert histories.take(record_at("p.control", b"k", None)) is None
    assert histories.take(record_at("p.control", b"k", encode(Beat("learn", 0, "m", 1, "primary", 1, 1)))) is None
    claim = Claim("learn", 0, 1, "m")
    assert histories.take(record_at("p.control", b"k", encode(claim))) is None
    assert histories.take(record_at("p.control", b"claim/learn/0/1/m", encode(claim))) == (claim, True)
    assert [each.version.n for each in histories.kept(LEARN)] == [2, 3]
    with pytest.raises(CheckpointError, match=r"manifest of e1\.v1 of learn/0 is not in its version log"):
        histories.manifest(LEARN, Version(1, 1))
    assert histories.manifest(LEARN, INITIAL) is None


def test_a_damaged_record_is_told_of_and_gone_back_behind_only_on_purpose(histories):
    with pytest.raises(UsageError, match="would start from anyway"):
        check_rewind(histories, kept_version(histories, LEARN, "1.3"))
    assert histories.take(record_at("p.learn.versions", b"manifest/1/4", b"rubbish")) is None
    assert "p.learn.versions[0] at offset 3" in histories.logs.damage(LEARN).where
    with pytest.raises(CheckpointError, match=r"p\.learn\.versions\[0\] at offset 3.*spillway state rewind"):
        histories.logs.candidate(LEARN)
    check_rewind(histories, kept_version(histories, LEARN, "1.3"))
    assert re.search(r"p\.learn\.versions\[0\] at offset 3 is damaged: .* are lost\.", newest_of(histories, LEARN))
    assert [damage.key for damage in histories.logs.accept(LEARN)] == [b"manifest/1/4"]
    assert histories.logs.candidate(LEARN) == Version(1, 3)
    assert newest_of(histories, LEARN) == "learn/0 is at e1.v3."


MODELS = """
import numpy as np


class Model:
    def initialize(self):
        return {"w": np.zeros(2), "n": 0}

    def compute(self, state, batch):
        return [{} for _ in batch]

    def update(self, state, batch, outputs):
        return state
"""


def test_a_state_has_to_fit_the_model_only_by_its_entries(tmp_path, monkeypatch):
    (tmp_path / "operator_models.py").write_text(MODELS)
    monkeypatch.syspath_prepend(tmp_path)
    stage = StageSpec(name="a", model="operator_models:Model", state=StateSpec(kind="shared"))
    good = {"w": np.ones(2), "n": 7}
    refuse_misfit(stage, good, None)
    refuse_misfit(stage, {}, {"k": good})
    wrong = [{"w": np.ones(3), "n": 0}, {"w": np.ones(2)}, {**good, "x": 1}, {"w": 1, "n": 0}]
    said = [
        r"numpy float64 \[3\], but the model has numpy float64 \[2\]",
        "'n' is missing",
        "'x' is not an entry",
        "is value, but",
    ]
    for state, text in zip(wrong, said, strict=True):
        with pytest.raises(UsageError, match=f"the state of key 'k' does not fit .*{text}"):
            refuse_misfit(stage, {}, {"k": state})
    with pytest.raises(UsageError, match="names no model"):
        refuse_misfit(stage.model_copy(update={"model": None}), good, None)
