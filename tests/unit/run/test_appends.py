"""What a member appends by itself: each record once, to its own log."""

import pytest

from spillway.agents.run.appends import LogAppender
from spillway.agents.run.shard_context import Sent
from spillway.checkpoint import claims, version_log
from spillway.lineage.errors import CheckpointError
from spillway.lineage.marks import INITIAL
from spillway.lineage.replication import Base, Claim, Fence, Yield
from spillway.lineage.values.replication import ReplicationDecoder

PLACE = ("learn", 1)
CLAIM = Claim(*PLACE, 3, "m")


class Output:
    def __init__(self):
        self.sent, self.tokens = [], []

    def send(self, record, token):
        self.sent.append(record)
        self.tokens.append(token)


def test_each_record_is_appended_once_to_its_own_log_under_its_own_key():
    output = Output()
    appender = LogAppender(output, "p", PLACE)
    records = [CLAIM, Yield(*PLACE, 3, "m"), Fence(3, "m"), Base(3, "m", INITIAL, ((3, INITIAL),))]
    for record in records:
        appender.append(record)
    assert [(each.topic, each.partition) for each in output.sent] == [
        *[("p.control", 0)] * 2, *[("p.learn.versions", 1)] * 2,
    ]  # fmt: skip
    keys = [claims.key(record) for record in records[:2]] + [version_log.key(record) for record in records[2:]]
    assert [each.key.decode() for each in output.sent] == keys
    assert [ReplicationDecoder().record(each.value) for each in output.sent] == records
    with pytest.raises(CheckpointError, match="appended before"):
        appender.append(CLAIM)


def test_what_is_stored_of_it_is_nothing_of_a_reign():
    output = Output()
    LogAppender(output, "p", PLACE).append(CLAIM)
    sent = Sent(None, None)
    assert LogAppender.stored([sent, *output.tokens, sent]) == [sent, sent]
