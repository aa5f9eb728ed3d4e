"""The status of every error and reason, by HTTP and gRPC: one table, and no import of either."""

from __future__ import annotations

from typing import Final, NamedTuple

from spillway.lineage import reasons
from spillway.lineage.errors import BrokerError, SpillwayError, UsageError, WireError
from spillway.producers.client.exchange import ClientClosedError, OutcomeTimeoutError, TooManyInFlightError


class Status(NamedTuple):
    """A status by its HTTP code and its name in gRPC."""

    http: int
    grpc: str


OK: Final = Status(200, "OK")
INVALID: Final = Status(400, "INVALID_ARGUMENT")
UNAUTHENTICATED: Final = Status(401, "UNAUTHENTICATED")
FORBIDDEN: Final = Status(403, "PERMISSION_DENIED")
NOT_FOUND: Final = Status(404, "NOT_FOUND")
UNSUPPORTED: Final = Status(404, "UNIMPLEMENTED")
UNREADABLE: Final = Status(415, "INVALID_ARGUMENT")
TOO_LARGE: Final = Status(413, "RESOURCE_EXHAUSTED")
TOO_MANY: Final = Status(429, "RESOURCE_EXHAUSTED")
INTERNAL: Final = Status(500, "INTERNAL")
UNAVAILABLE: Final = Status(503, "UNAVAILABLE")
LATE: Final = Status(504, "DEADLINE_EXCEEDED")

BY_REASON: Final = {
    # a later answer is no use, and the client may ask for more time
    reasons.EXPIRED: LATE,
    reasons.TOO_LATE: LATE,
    reasons.JOIN_TIMEOUT: LATE,
    # the same query may be answered later
    reasons.LANE_FULL: UNAVAILABLE,
    reasons.NO_SPARE_TIME: UNAVAILABLE,
    reasons.NO_VARIANT: UNAVAILABLE,
    reasons.NO_WORKER: UNAVAILABLE,
    # the client has to send something else
    reasons.CORRUPT: INVALID,
    reasons.BAD_HEADERS: INVALID,
    reasons.BAD_INPUT: INVALID,
    reasons.NOT_ENCODABLE: INVALID,
    reasons.TOO_LARGE: TOO_LARGE,
    # the pipeline is at fault
    reasons.NOT_AVRO: INTERNAL,  # what the gateway itself has written
    reasons.UNKNOWN_SCHEMA: INTERNAL,
    reasons.MODEL_RAISED: INTERNAL,
    reasons.MODEL_DIED: INTERNAL,
    reasons.WRONG_RESULT_COUNT: INTERNAL,
    reasons.BAD_RESULT: INTERNAL,
    reasons.BAD_ROUTE: INTERNAL,
    reasons.PART_GONE: INTERNAL,
}

_BY_ERROR: Final[tuple[tuple[type[SpillwayError], Status], ...]] = (
    (OutcomeTimeoutError, LATE),
    (TooManyInFlightError, TOO_MANY),
    (ClientClosedError, UNAVAILABLE),
    (BrokerError, UNAVAILABLE),
    (UsageError, INVALID),
)


class RefusedError(UsageError):
    """The gateway itself refuses a request."""

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(text)
        self.status = status


def status_of(error: BaseException) -> Status:
    """Return an error's status; that of one of no known kind is INTERNAL."""
    if isinstance(error, RefusedError):
        return error.status
    if isinstance(error, WireError):
        return status_of_reason(error.reason)
    return next((status for kind, status in _BY_ERROR if isinstance(error, kind)), INTERNAL)


def retry_after(status: Status) -> dict[str, str]:
    """Return the header of HTTP that says when to ask again, where that helps."""
    return {"Retry-After": "1"} if status in (TOO_MANY, UNAVAILABLE) else {}


def status_of_reason(reason: str) -> Status:
    """Return the status of an outcome that is no prediction; INTERNAL for a reason that a newer pipeline has."""
    return BY_REASON.get(reason, INTERNAL)
