"""Which dead letters still wait for somebody: those whose queries were not asked again."""

from spillway.agents.live.operator.dead_letters import ATTEMPT, RETRY_OF, Letter, retried
from spillway.lineage.headers import REQUEST_ID
from spillway.lineage.message import DeadLetter


def letter(offset, request_id, attempt=1, first=None):
    pairs = [(REQUEST_ID, request_id), *([(RETRY_OF, first), (ATTEMPT, str(attempt))] if first else [])]
    headers = [(name.encode(), value.encode()) for name, value in pairs if value]
    return Letter(0, offset, DeadLetter("p.ingress", 0, offset, "a", "model-raised", "", offset, headers=headers))


def test_a_letter_is_over_when_a_later_attempt_has_one_or_is_noted():
    chain = [letter(0, "q"), letter(1, "other"), letter(2, "q.2-x", 2, "q"), letter(3, "q.3-y", 3, "q")]
    assert retried(chain, ()) == {"0/0", "0/2"}
    assert retried(chain, {"0/3"}) == {"0/0", "0/2", "0/3"}


def test_letters_that_name_no_query_have_nothing_to_do_with_one_another():
    assert retried([letter(0, ""), letter(1, "", 2)], ()) == set()
