"""Two gates under one name: how the one that must stop learns of it, and what it says.

The broker tells a gate by its transactional id, and by its place in its group. The first is certain; the second may be
the gate's own earlier self.
"""

from __future__ import annotations

from confluent_kafka import KafkaError

from spillway.lineage.errors import BrokerError, FencedError, OustedError

_FENCED_CODES = frozenset(
    {
        KafkaError._FENCED,  # noqa: SLF001 (librdkafka's local codes have underscores)
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
    }
)


class UnheardError(OustedError):
    """Nobody has answered this gate's consumer for its group: librdkafka may have lost the way to the coordinator.

    It has been seen to, where the only broker was fenced for some seconds; a new consumer finds it at once.
    """


def fenced(who: str, cause: KafkaError) -> FencedError:
    return FencedError(
        f"gate {who} was fenced: another gate has taken its place under the same ids ({cause.str()}). This is "
        "expected if that gate replaced this one; otherwise two gates were started with the same replica number"
    )


def ousted(who: str, cause: KafkaError) -> OustedError:
    return OustedError(f"gate {who} has lost its place in its group: {cause.str()}")


def is_fencing(cause: KafkaError) -> bool:
    return cause.code() in _FENCED_CODES or "fenced" in cause.str().lower()


def judge(who: str, cause: KafkaError) -> BrokerError:
    """What a failed write of `who` comes to: a fencing, or what else librdkafka says."""
    if is_fencing(cause):
        return fenced(who, cause)
    return BrokerError(f"gate {who} cannot write: {cause.str()} ({cause.name()})")
