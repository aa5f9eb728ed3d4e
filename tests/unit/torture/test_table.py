"""The table of docs/failover.md, made of results."""

from tests.torture.table import lines, read


def result(case, row, gap, problems=()):
    return {"case": case, "row": row, "longest_gap": gap, "problems": list(problems)}


def test_rows_tell_medians_and_what_went_wrong():
    table = lines(
        [
            result("gate-1", "the gate", 1.0),
            result("gate-2", "the gate", 3.0),
            result("gate-3", "the gate", 2.5),
            result("gate-4", "the gate", 9.0, ["q1: no outcome"]),
            result("cut-1", "links", 0.0),
            *(result(f"a{n}-1", "many", n) for n in range(1, 7)),
        ]
    )
    assert table[2] == "| the gate | 4 | 1 | 2.50 s (1.00 to 3.00) | `gate` |"
    assert table[3] == "| links | 1 | 0 | none | `cut` |"
    assert table[4].endswith("| `a1`, `a2`, `a3`, `a4` and 2 more |")


def test_of_a_case_that_ran_twice_the_last_counts(tmp_path):
    file = tmp_path / "results.jsonl"
    file.write_text('{"case": "a-1", "n": 1}\n{"case": "b-1", "n": 2}\n{"case": "a-1", "n": 3}\n')
    assert [one["n"] for one in read(file)] == [3, 2]
