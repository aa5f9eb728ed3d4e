"""What the terminal of `serve` says of queries: the first failure of each kind, and how many were answered."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from spillway.agents.supervise.console import Answered, FirstFailures, Silence, last_traceback, of_gate
from spillway.agents.supervise.scrape import figures
from tests.unit.supervise.test_readings import GATE, STAGE, a_stage, reading

TRACE = """Traceback (most recent call last):
  File "m.py", line 1, in predict
    raise KeyError("x")
KeyError: 'x'"""


def seen(entry, **outcomes):
    known = figures(entry, reading(a_stage(), 0.0), None)
    return replace(known, outcomes=outcomes)


def test_each_reason_is_news_once_a_stage():
    failures = FirstFailures()
    broken = seen(STAGE, failed={"model-raised": 1}, dropped={"expired": 3})
    assert list(failures.news("detect", broken)) == ["model-raised"]
    assert list(failures.news("detect", replace(broken, outcomes={"failed": {"model-raised": 7, "bad-input": 1}}))) == [
        "bad-input"
    ]
    assert list(failures.news("rank", broken)) == ["model-raised"]


def test_what_a_gate_released_counts_over_all_of_its_processes():
    answered = Answered()
    for count in (3, 5, 2, 4):  # the third is another process
        answered.note(seen(GATE, prediction={"": count - 1}, failed={"bad-input": 1}))
    answered.note(None)
    assert answered.total == 9


def test_the_gate_is_found_by_its_role():
    assert of_gate({"detect.0": seen(STAGE), "gate.0": seen(GATE)}).role == "gate"
    assert of_gate({}) is None


def test_the_newest_traceback_of_a_log_is_given_whole(tmp_path):
    log = tmp_path / "a.log"
    assert last_traceback(log) == ""
    log.write_text("2026 INFO a: well\n")
    assert last_traceback(log) == ""
    log.write_text(f"INFO\n{TRACE.replace('x', 'y')}\nERROR more\n{TRACE}\nINFO after\n  not of it\n")
    assert last_traceback(log) == TRACE


def test_a_long_traceback_loses_its_middle(tmp_path):
    log = tmp_path / "a.log"
    log.write_text("\n".join([TRACE.splitlines()[0], *(f"  line {n}" for n in range(500)), "RecursionError: too deep"]))
    lines = last_traceback(log).splitlines()
    assert len(lines) < 40
    assert (lines[1], lines[-1]) == ("  line 0", "RecursionError: too deep")


@given(st.lists(st.tuples(st.floats(0.1, 9.0), st.integers(0, 2), st.booleans())))
def test_silence_is_as_long_as_queries_have_waited_since_the_last_answer(looks):
    silence, now, answered, began = Silence(), 0.0, 0, None
    for passed, more, waiting in looks:
        now, answered = now + passed, answered + more
        silence.note(now, answered, waiting=waiting)
        began = None if not waiting else now if more or began is None else began
        assert silence.seconds(now + 1.0) == (0.0 if began is None else now + 1.0 - began)
