"""Reason codes: why a query was dropped or failed, as they stand in outcomes, dead letters and metric labels.

Codes are stable and few; the free text beside a code says the rest.
"""

# Dropped on purpose, by a policy.
EXPIRED = "expired"  # past its deadline when it was about to enter a batch, or while it waited
TOO_LATE = "too-late"  # estimated to miss its deadline
LANE_FULL = "lane-full"  # each of its members that would have answered had too much waiting
NO_SPARE_TIME = "no-spare-time"  # an offline query that nobody had time for: it is to be asked again
NO_VARIANT = "no-variant"  # no variant that is there meets what it needs, and no other one may answer

# Bad input on the wire.
NOT_AVRO = "not-avro"
UNKNOWN_SCHEMA = "unknown-schema"
CORRUPT = "corrupt"
BAD_HEADERS = "bad-headers"
BAD_INPUT = "bad-input"  # a name, dtype or shape that the stage does not take
TOO_LARGE = "too-large"  # over a limit: bytes, count, rank
NOT_ENCODABLE = "not-encodable"  # a value that no message can hold; the stage reports it as a bad result

# The stage could not do its work.
MODEL_RAISED = "model-raised"
MODEL_DIED = "model-died"  # the model ended its process, or ran beyond its time-out
NO_WORKER = "no-worker"  # no worker of the stage was ready until long after the deadline
WRONG_RESULT_COUNT = "wrong-result-count"
BAD_RESULT = "bad-result"  # a result that is no mapping, or cannot be encoded
BAD_ROUTE = "bad-route"  # split, choose or join raised, or named a stage that is no successor
JOIN_TIMEOUT = "join-timeout"
PART_GONE = "part-gone"  # the log no longer had a part that had waited for the others
