"""Who wins an epoch (rule 3)."""

from hypothesis import given
from hypothesis import strategies as st

from spillway.checkpoint.claims import Claim, Claims, key

A = ("a", 0)


def claim(epoch, claimant, place=A):
    return Claim(*place, epoch, claimant)


def test_the_first_claim_of_an_epoch_in_log_order_wins():
    claims = Claims()
    assert claims.take(claim(1, "x"))
    assert not claims.take(claim(1, "y"))
    assert (claims.epoch(A), claims.winner(A)) == (1, "x")
    assert claims.take(claim(2, "y"))
    assert (claims.epoch(A), claims.winner(A)) == (2, "y")


def test_shards_do_not_know_each_other():
    claims = Claims()
    assert claims.take(claim(1, "x"))
    assert claims.take(claim(1, "y", ("a", 1)))
    assert claims.take(claim(1, "z", ("b", 0)))
    assert claims.winner(("c", 0)) == ""
    assert claims.epoch(("c", 0)) == 0


def test_no_claim_replaces_another_one_in_the_compacted_log():
    """Rule 3: keyed by stage, shard, epoch, claimant."""
    all_claims = [claim(1, "x"), claim(1, "y"), claim(2, "x"), claim(1, "x", ("a", 1)), claim(1, "x", ("b", 0))]
    assert len({key(one) for one in all_claims}) == len(all_claims)


@given(st.lists(st.tuples(st.integers(1, 5), st.sampled_from("xyz")), max_size=20))
def test_of_one_epoch_at_most_one_claimant_wins_and_epochs_rise(made):
    claims = Claims()
    won = [one for one in made if claims.take(claim(*one))]
    epochs = [epoch for epoch, _ in won]
    assert epochs == sorted(set(epochs))
