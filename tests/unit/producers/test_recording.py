"""Recordings survive being cut anywhere, say what is wrong with them by name, and are plain Avro."""

import json
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from avro.datafile import DataFileReader
from avro.io import DatumReader

from spillway.lineage.errors import UsageError
from spillway.producers.recording import About, Recorded, RecordingWriter, read_recording, tap

ABOUT = About(
    pipeline="p",
    spec="name: p\n",
    ingress="p.ingress",
    egress="p.egress",
    fronts={"a": 2},
    policies={"a": "naive"},
    started=1_700_000_000.25,
    period=0.1,
)


def message(number: int, topic: str = "p.ingress", **changes) -> Recorded:
    fields = {
        "topic": topic,
        "partition": number % 3,
        "offset": number,
        "timestamp": 1_700_000_000 + number / 8,
        "key": b"k%d" % number,
        "headers": (("x-request-id", b"r%d" % number), ("x-none", None)),
        "value": bytes(range(number % 7)),
    }
    return Recorded(**fields | changes)


def record(directory: Path, messages) -> Path:
    with RecordingWriter(directory, ABOUT) as writer:
        for each in messages:
            writer.write(each)
            writer.flush()
    return directory


def test_what_is_recorded_is_read_back(tmp_path):
    messages = [message(0), message(1, "p.egress"), message(2, key=None, value=None, headers=())]
    recording = read_recording(record(tmp_path / "r", messages))
    assert list(recording.messages()) == messages
    assert recording.about == ABOUT
    assert recording.torn_bytes == 0
    assert [m.offset for m in recording.queries()] == [0, 2]


def test_a_recording_from_before_periods_were_told_does_not_know_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "ABOUT", replace(ABOUT, period=None))
    recording = read_recording(record(tmp_path / "r", [message(0)]))
    assert recording.about == ABOUT
    with DataFileReader((tmp_path / "r" / "recording-00001.avro").open("rb"), DatumReader()) as reader:
        assert "spillway.period" not in reader.meta  # as it was then


def test_queries_come_in_order_of_arrival_over_all_partitions(tmp_path):
    messages = [message(0, timestamp=3.0), message(1, timestamp=1.0), message(2, timestamp=2.0)]
    recording = read_recording(record(tmp_path / "r", messages))
    assert [m.timestamp for m in recording.queries()] == [1.0, 2.0, 3.0]


def test_avro_itself_reads_a_recording(tmp_path):
    record(tmp_path / "r", [message(5)])
    with DataFileReader((tmp_path / "r" / "recording-00001.avro").open("rb"), DatumReader()) as reader:
        (read,) = list(reader)
        assert reader.meta["spillway.spec"] == b"name: p\n"
        assert json.loads(reader.meta["spillway.fronts"]) == {"a": 2}
    assert read["value"] == bytes(range(5))
    assert read["headers"][0] == {"key": "x-request-id", "value": b"r5"}


def test_a_file_cut_at_any_byte_gives_its_whole_blocks_and_no_more(tmp_path):
    messages = [message(number) for number in range(6)]
    whole = (record(tmp_path / "r", messages) / "recording-00001.avro").read_bytes()
    cut = tmp_path / "cut"
    cut.mkdir()
    header = whole.index(whole[-16:]) + 16  # the sync marker's first place is the header's end
    counts = []
    for length in range(len(whole) + 1):
        (cut / "recording-00001.avro").write_bytes(whole[:length])
        if length < header:
            with pytest.raises(UsageError, match=r"cut/recording-00001\.avro ends within its header"):
                read_recording(cut)
            continue
        recording = read_recording(cut)
        read = list(recording.messages())
        assert read == messages[: len(read)]
        counts.append(len(read))
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert counts[-1] == len(messages)


def test_only_the_last_file_may_be_torn(tmp_path):
    directory = record(tmp_path / "r", [message(1)])
    first = directory / "recording-00001.avro"
    shutil.copy(first, directory / "recording-00002.avro")
    first.write_bytes(first.read_bytes()[:-3])
    with pytest.raises(UsageError, match=r"recording-00001\.avro ends in the middle of a block, but is not the last"):
        read_recording(directory)


def test_a_recorder_killed_while_it_began_a_file_leaves_the_others_readable(tmp_path):
    directory = record(tmp_path / "r", [message(1)])
    (directory / "recording-00002.avro").write_bytes(b"Obj\x01\x0a")
    assert len(list(read_recording(directory).messages())) == 1


def test_a_missing_file_is_named(tmp_path):
    directory = record(tmp_path / "r", [message(1)])
    (directory / "recording-00001.avro").rename(directory / "recording-00002.avro")
    with pytest.raises(UsageError, match=r"lacks recording-00001\.avro"):
        read_recording(directory)


def test_a_file_damaged_inside_is_named_with_the_place(tmp_path):
    file = record(tmp_path / "r", [message(number) for number in range(3)]) / "recording-00001.avro"
    data = bytearray(file.read_bytes())
    sync = data[-16:]
    second = data.find(sync, data.find(sync) + 16)  # the marker of the first block
    data[second] ^= 0xFF
    file.write_bytes(data)
    with pytest.raises(UsageError, match=r"recording-00001\.avro is damaged in the block at byte \d+"):
        read_recording(tmp_path / "r")


@pytest.mark.parametrize("seed", range(200))
def test_any_changed_byte_gives_a_usage_error_or_records_never_another_exception(tmp_path, seed):
    file = record(tmp_path / "r", [message(number) for number in range(3)]) / "recording-00001.avro"
    data = bytearray(file.read_bytes())
    data[seed * len(data) // 200] ^= 1 << (seed % 8)
    file.write_bytes(data)
    try:
        list(read_recording(tmp_path / "r").messages())
    except UsageError as error:
        assert "recording-00001.avro" in str(error)  # noqa: PT017 (it may as well not raise)


def test_a_foreign_file_is_refused_by_name(tmp_path):
    (tmp_path / "recording-00001.avro").write_bytes(b"second,requests\n")
    with pytest.raises(UsageError, match=r"recording-00001\.avro is not an Avro container file"):
        read_recording(tmp_path)


def test_a_directory_without_recordings_is_refused(tmp_path):
    with pytest.raises(UsageError, match="holds no recording"):
        read_recording(tmp_path)
    with pytest.raises(UsageError, match="holds no recording"):
        read_recording(tmp_path / "absent")


def test_files_rotate_and_read_as_one(tmp_path):
    with RecordingWriter(tmp_path / "r", ABOUT, rotate_bytes=2000) as writer:
        for number in range(40):
            writer.write(message(number, value=bytes(100)))
            writer.tick(1e12 + number)
    files = sorted((tmp_path / "r").iterdir())
    assert len(files) > 2
    assert [m.offset for m in read_recording(tmp_path / "r").messages()] == list(range(40))


def test_a_used_directory_is_left_alone(tmp_path):
    record(tmp_path / "r", [message(1)])
    with pytest.raises(UsageError, match="not empty"):
        RecordingWriter(tmp_path / "r", ABOUT)
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="cannot record into"):
        RecordingWriter(tmp_path / "file", ABOUT)


def test_a_tap_that_hears_nothing_looks_whether_the_cluster_is_there(monkeypatch):
    """Else a librdkafka that is left without a broker would record nothing more, untold."""
    looks = []

    reader = SimpleNamespace(
        partitions=lambda *_: 1,
        ends=lambda *_: [],
        assign=lambda _places: None,
        read=lambda *_: [],
        heed=lambda *within: looks.append(within),
    )
    monkeypatch.setattr(tap, "Reader", lambda *_: reader)
    tap.Tap(None, ["p.ingress"]).copy(SimpleNamespace(tick=bool), time.monotonic() + 60, lambda: bool(looks))
    assert looks == [(5.0, 2.0)]
