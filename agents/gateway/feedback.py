"""The text by which a client of the gateway names an answer when it sends a truth: opaque, signed, and self-contained.

It holds what learners need of an outcome (`spillway.producers.client.feedback`): its flags and its outputs, so no
replica has to remember it, and any replica with the same secret takes it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import zlib
from typing import TYPE_CHECKING, Final

from spillway.lineage import reasons
from spillway.lineage.errors import UsageError, WireError
from spillway.lineage.flags import KEYS
from spillway.lineage.message import PREDICTION, Outcome
from spillway.lineage.values.json_text import read_value, show_value

if TYPE_CHECKING:
    from pathlib import Path

    from spillway.lineage.limits import Limits

MOST_BYTES: Final = 1 << 20  # of what is in a text, unpacked
_DIGEST: Final = 16
_LEAST_SECRET: Final = 16


def secret_in(file: Path) -> bytes:
    """Return the secret in a file, which is made where there is none. Raises UsageError where that cannot be."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as new:
                new.write(os.urandom(32).hex().encode())
        except FileExistsError:
            pass
        secret = file.read_bytes().strip()
    except OSError as error:
        raise UsageError(f"cannot use the secret in {file}: {error.strerror or error}") from error
    if len(secret) < _LEAST_SECRET:
        raise UsageError(f"{file}: a secret has at least {_LEAST_SECRET} bytes")
    return secret


class Signer:
    """Makes texts of outcomes, and outcomes of texts."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def text_of(self, pipeline: str, outcome: Outcome) -> str:
        """Return the text; empty where no learner wants to hear of the outcome, or where it is too large for one."""
        if not any(isinstance(told, dict) and KEYS in told for told in outcome.flags.values()):
            return ""
        told = {"flags": outcome.flags, "outputs": show_value(outcome.outputs)}
        packed = json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        if len(packed) > MOST_BYTES:
            return ""
        data = zlib.compress(packed)
        return base64.urlsafe_b64encode(self._sign(pipeline, data) + data).decode().rstrip("=")

    def outcome_of(self, pipeline: str, text: str, limits: Limits) -> Outcome:
        """Return what a text was made of. Raises WireError(BAD_INPUT) for a text that was not made here."""
        try:
            raw = base64.urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4))
        except ValueError:
            raw = b""
        signature, data = raw[:_DIGEST], raw[_DIGEST:]
        if not hmac.compare_digest(signature, self._sign(pipeline, data)):
            raise WireError(
                reasons.BAD_INPUT,
                f"feedback: this text does not come from an answer of {pipeline!r} by a gateway with the same secret",
            )
        told = json.loads(zlib.decompress(data))
        outputs = {name: read_value(value, name, limits) for name, value in told["outputs"].items()}
        return Outcome(PREDICTION, outputs, flags=told["flags"])

    def _sign(self, pipeline: str, data: bytes) -> bytes:
        key = pipeline.encode() + b"\0" + data
        return hmac.new(self._secret, key, hashlib.sha256).digest()[:_DIGEST]
