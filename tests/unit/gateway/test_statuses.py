"""Every reason and every error has a status."""

import http

import pytest

from spillway.agents.gateway import statuses
from spillway.lineage import reasons
from spillway.lineage.errors import BrokerError, SpillwayError, TopicError, UsageError, WireError
from spillway.producers.client.exchange import ClientClosedError, OutcomeTimeoutError, TooManyInFlightError

GRPC = {
    *("OK", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED"),
    *("UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "UNAUTHENTICATED"),
}
STATUSES = [each for each in vars(statuses).values() if isinstance(each, statuses.Status)]


def test_the_table_covers_all_reasons():
    codes = {value for name, value in vars(reasons).items() if name.isupper()}
    assert statuses.BY_REASON.keys() == codes
    assert len(codes) >= 20


@pytest.mark.parametrize("status", STATUSES)
def test_a_status_is_one_of_both_protocols(status):
    assert http.HTTPStatus(status.http)
    assert status.grpc in GRPC


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OutcomeTimeoutError("no"), 504),
        (TooManyInFlightError("no"), 429),
        (ClientClosedError("no"), 503),
        (BrokerError("no"), 503),
        (TopicError("no"), 503),
        (UsageError("no"), 400),
        (WireError(reasons.BAD_INPUT, "no"), 400),
        (WireError(reasons.TOO_LARGE, "no"), 413),
        (WireError("a-newer-one", "no"), 500),
        (SpillwayError("no"), 500),
        (KeyError("no"), 500),
    ],
)
def test_an_error_has_the_status_of_its_kind(error, code):
    assert statuses.status_of(error).http == code
