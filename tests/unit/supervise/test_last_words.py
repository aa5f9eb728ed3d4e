"""What a child said in the end is repeated at its next death only where it is something else."""

from types import SimpleNamespace

from agents.supervise.supervisor import Supervisor


def test_a_reason_is_told_once_until_it_changes(tmp_path):
    said = {"a": "no weights", "b": "no weights"}
    supervisor = SimpleNamespace(_words={})

    def because(name, **how):
        plan = SimpleNamespace(name=name)
        child = SimpleNamespace(plan=plan, log=tmp_path / name, last_words=lambda: said[name])
        return Supervisor._because(supervisor, child, **how)

    assert "a: no weights" in because("a")
    assert because("a") == " (as before)"
    assert "a: no weights" in because("a", again=True), "as it is given up"
    assert "b: no weights" in because("b")
    said["a"] = "no memory"
    assert "a: no memory" in because("a")
    said["a"] = ""
    assert because("a") == f" (its log is {tmp_path / 'a'})"
