"""What judges the runs under a heavy load sees each way in which answers can be wrong."""

import os

import pytest

from lineage.message import FAILED, PREDICTION
from tests.torture.heavy import Answered, counted, once_each, peak

IDS = [f"q{number}" for number in range(8)]
RIGHT = [Answered(name, PREDICTION, {"x": at, "of_all": 7 - at, "of_key": 0}) for at, name in enumerate(IDS)]


def test_right_answers_are_right():
    assert once_each(IDS, RIGHT) + counted(RIGHT) == []


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (RIGHT[1:], "1 queries have no outcome"),
        ([*RIGHT, RIGHT[3]], "1 queries have several outcomes"),
        ([*RIGHT, Answered("another", PREDICTION, {})], "1 queries were never sent"),
        ([*RIGHT[1:], Answered("q0", FAILED, {"reason": "join-overflow"})], "1 outcomes are failed: join-overflow"),
    ],
)
def test_each_query_has_one_outcome(answers, said):
    assert [problem for problem in once_each(IDS, answers) if problem.startswith(said)]


@pytest.mark.parametrize("told", [{"of_all": 6}, {"of_all": 8}, {"x": 0, "of_all": 7, "of_key": 1}])
def test_each_number_of_a_counter_is_said_once(told):
    assert counted([Answered("q0", PREDICTION, told), *RIGHT[1:]])


def test_the_memory_of_a_process_is_what_it_had_at_most():
    before = peak(os.getpid())
    block = bytearray(64 << 20)
    block[::4096] = b"x" * len(block[::4096])
    del block
    assert peak(os.getpid()) >= max(before, 64)
