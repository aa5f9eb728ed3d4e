"""What is said, and logged, of an exception in a user's code."""

import json

import pytest

from agents.models.raised import LOG_SECONDS, ModelRaisedError, RaisedLog, trace_of, words_of


def raised_by(function):
    try:
        function()
    except Exception as error:  # noqa: BLE001
        return error
    raise AssertionError("nothing was raised")


def in_a_library():
    json.loads("{")


def here():
    raise ValueError("no twos")


LINE = here.__code__.co_firstlineno + 1


def test_the_users_line_is_named():
    assert words_of(raised_by(here)) == f"ValueError: no twos (tests/unit/models/test_raised.py:{LINE} in here)"


def test_the_users_line_is_named_where_a_library_raises():
    assert "JSONDecodeError" in words_of(raised_by(in_a_library))
    assert words_of(raised_by(in_a_library)).endswith(" in in_a_library)")


def test_an_error_without_a_frame_has_its_name_alone():
    assert words_of(KeyError("x")) == "KeyError: 'x'"


def test_a_file_elsewhere_is_named_without_its_folder(tmp_path):
    code = compile("def f():\n    raise ValueError('no')", str(tmp_path / "models.py"), "exec")
    names = {}
    exec(code, names)
    assert words_of(raised_by(names["f"])) == "ValueError: no (models.py:2 in f)"


def test_what_another_process_said_is_passed_on():
    error = raised_by(here)
    told = ModelRaisedError(words_of(error), trace_of(error))
    assert words_of(told) == words_of(error)
    assert trace_of(told) == trace_of(error)
    assert trace_of(error).endswith("ValueError: no twos\n")


@pytest.mark.parametrize("elsewhere", [False, True])
def test_the_log_has_each_place_once_a_minute_with_the_traceback_and_counts(caplog, elsewhere):
    now = [100.0]
    log = RaisedLog("detect", lambda: now[0])
    error = raised_by(here)
    if elsewhere:
        error = ModelRaisedError(words_of(error), trace_of(error))
    for _ in range(3):
        assert log.words(error) == words_of(error)
    log.words(raised_by(in_a_library), "choose")
    assert [record.message.splitlines()[0] for record in caplog.records] == [
        f"stage 'detect': the model raised: {words_of(error)}",
        f"stage 'detect': choose raised: {words_of(raised_by(in_a_library))}",
    ]
    assert "Traceback (most recent call last)" in caplog.records[0].message
    caplog.clear()
    now[0] += LOG_SECONDS
    log.words(error)
    log.words(error)
    (again,) = caplog.records
    assert again.message.startswith("stage 'detect': the model raised (2 more times in the 60 s before): ValueError")


def test_the_log_forgets_the_oldest_place(monkeypatch, caplog):
    monkeypatch.setattr("agents.models.raised._MOST_PLACES", 1)
    log = RaisedLog("s", lambda: 0.0)
    for _ in range(2):
        log.words(raised_by(here))
        log.words(raised_by(in_a_library))
    assert len(caplog.records) == 4
