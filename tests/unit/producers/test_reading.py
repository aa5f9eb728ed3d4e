"""What whoever reads is told of a partition that cannot be read: at once, or when patience is over."""

from types import SimpleNamespace

import pytest

from spillway.lineage.errors import BrokerError, TopicError, UnreachableError
from spillway.lineage.ports import Record
from spillway.producers.connection import ClientSettings
from spillway.producers.kafka import reading
from spillway.producers.kafka.reading import Reading

SLOT = ("t", 0)
RECORD = Record(*SLOT, 0, 0, False, None, b"v", ())


@pytest.fixture
def follow(monkeypatch):
    """Has partitions followed by a log that says what a test has it say; it is never read to its end."""
    told = SimpleNamespace(position=0, when_read=lambda _then: None, stop=lambda: None)

    def following(_slot, _start, accept, *, trouble):
        told.accept, told.trouble = accept, trouble
        return told

    made = SimpleNamespace(follow=following, shut=lambda: None)
    monkeypatch.setattr(reading, "KafkaLog", lambda *_, **_options: made)
    return told


@pytest.mark.parametrize("error", [TopicError("none"), BrokerError("refused")])
def test_what_time_does_not_heal_is_raised_at_once(follow, error):
    with Reading(ClientSettings(bootstrap="b:1"), [SLOT]) as opened:
        follow.trouble(error)
        with pytest.raises(type(error), match=str(error)):
            opened.read()


@pytest.mark.parametrize(("position", "error"), [(0, UnreachableError("away")), (1, TopicError("unknown"))])
def test_what_time_may_heal_is_waited_for_and_raised_when_patience_is_over(follow, position, error):
    with Reading(ClientSettings(bootstrap="b:1"), [SLOT], patience=0.0) as opened:
        follow.position = position
        follow.trouble(error)
        assert opened.read() == []
        follow.accept([RECORD])
        rest = opened.to_the_end()
        assert next(rest) is RECORD
        with pytest.raises(type(error), match=str(error)):
            list(rest)


def test_an_end_that_nobody_reaches_is_named(follow):
    with (
        Reading(ClientSettings(bootstrap="b:1"), [SLOT], patience=0.0) as opened,
        pytest.raises(BrokerError, match=r"t\[0\] on b:1 could not be read to its end"),
    ):
        list(opened.to_the_end())
