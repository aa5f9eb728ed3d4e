"""With how much care a record is run that processes may have died of."""

from spillway.agents.core.batching import Batch
from spillway.agents.core.crash_suspects import Care, Crashes, Suspects, place_of
from spillway.agents.core.request import Delivery, Request

ALONE, TOGETHER = frozenset({(0, 7)}), frozenset({(0, 6), (0, 7), (0, 8)})


def request(offset, *more, partition=0):
    parts = tuple(Delivery(f"r{offset}", partition, each, 1.0, 9.0, "", None) for each in (offset, *more))
    return Request(f"r{offset}", partition, 1.0, 9.0, 1.0, parts, {})


def test_neighbours_are_run_alone_and_never_fail_by_it():
    deaths = Crashes([TOGETHER, TOGETHER, ALONE, ALONE, ALONE])
    assert [deaths.care(request(offset)) for offset in (5, 6, 7, 8)] == [Care.NONE, Care.ALONE, Care.FAIL, Care.ALONE]


def test_a_joined_request_is_known_by_its_first_record():
    assert place_of(request(9, 7, partition=3)) == (3, 7)
    assert Crashes([ALONE, ALONE]).care(request(9, 7)) is Care.ALONE
    assert Crashes([ALONE, ALONE]).care(request(7, partition=1)) is Care.NONE


def test_a_stateful_stage_computes_such_queries_in_batches_of_their_own():
    suspects = Suspects()
    batch = Batch(0, [request(offset) for offset in (5, 6, 7)], 1.0, 2.0)
    assert suspects.apart(batch) == [batch]
    suspects.deaths = Crashes([TOGETHER, TOGETHER])
    parts = [[each.request_id for each in part.requests] for part in suspects.apart(batch)]
    assert parts == [["r5"], ["r6"], ["r7"]]
