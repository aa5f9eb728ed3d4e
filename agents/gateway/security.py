"""Who may ask the gateway for what.

- Where a file of tokens is given, a request brings one of them as `Authorization: Bearer TOKEN`. A line of the file is
  `TOKEN NAME`, and after these the pipelines that the token is for, where it is not for all. Empty lines and lines that
  begin with # are passed over.
- Where none is given, the Host header must name this machine, so no web page can have a browser ask in its place.
"""

from __future__ import annotations

import hashlib
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spillway.agents.gateway.statuses import FORBIDDEN, UNAUTHENTICATED, RefusedError
from spillway.lineage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SCHEME: Final = "bearer "
_LEAST_TOKEN: Final = 16  # characters
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_EVERYWHERE: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - to be recognised, not to be bound


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: the name of a token and the pipelines that it may ask; None: all."""

    name: str = ""
    pipelines: frozenset[str] | None = None


ANYBODY: Final = Caller()


class Gatekeeper:
    """Lets requests in, by their tokens or by the host that they are for."""

    def __init__(self, tokens: Mapping[bytes, Caller] | None, host: str, allowed: tuple[str, ...] = ()) -> None:
        """`tokens`: by their hashes; None: none is asked for. `allowed`: more names of this host."""
        self._tokens = tokens
        self._hosts = None if host in _EVERYWHERE and not allowed else _LOCAL | {host, *allowed}

    def caller(self, authorization: str, host: str | None) -> Caller:
        """Return who asks. Raises RefusedError; `host` is None where there is none."""
        if self._tokens is None:
            name = None if host is None else host.rsplit(":", 1)[0] if not host.endswith("]") else host
            if name is not None and self._hosts is not None and name.lower() not in self._hosts:
                text = f"this is not host {name!r:.80}; name it with --allow-host, or use tokens"
                raise RefusedError(FORBIDDEN, text)
            return ANYBODY
        if authorization[: len(_SCHEME)].lower() != _SCHEME:
            text = "a token is needed: send the header 'Authorization: Bearer TOKEN'"
            raise RefusedError(UNAUTHENTICATED, text)
        caller = self._tokens.get(_hashed(authorization[len(_SCHEME) :].strip()))
        if caller is None:
            raise RefusedError(UNAUTHENTICATED, "the token is not known here")
        return caller


def read_tokens(file: Path) -> dict[bytes, Caller]:
    """Return the callers in a file by the hashes of their tokens. Raises UsageError that names the line, no token."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the tokens in {file}: {error}") from error
    tokens: dict[bytes, Caller] = {}
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) < 2:  # noqa: PLR2004 - a token and its name
            raise UsageError(f"{file}:{number}: write TOKEN NAME, and the pipelines it is for if not all")
        token, name, *pipelines = words
        if len(token) < _LEAST_TOKEN:
            raise UsageError(f"{file}:{number}: a token has at least {_LEAST_TOKEN} characters")
        if _hashed(token) in tokens:
            raise UsageError(f"{file}:{number}: this token is there twice")
        tokens[_hashed(token)] = Caller(name, frozenset(pipelines) or None)
    if not tokens:
        raise UsageError(f"{file}: there is no token in it")
    return tokens


def _hashed(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def tls_context(certificate: Path | None, key: Path | None, client_ca: Path | None) -> ssl.SSLContext | None:
    """Return how TLS is spoken; None where it is not. With `client_ca` clients need certificates of it (mTLS)."""
    if certificate is None or key is None:
        if certificate is not None or key is not None or client_ca is not None:
            raise UsageError("TLS needs both --tls-cert and --tls-key; --tls-client-ca comes on top of them")
        return None
    try:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=client_ca)
        context.load_cert_chain(certificate, key, _no_password)
    except (OSError, ssl.SSLError) as error:
        files = f"{certificate} and {key}" if client_ca is None else f"{certificate}, {key} and {client_ca}"
        raise UsageError(f"cannot use the TLS files {files}: {error}") from error
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _no_password() -> str:
    raise UsageError("the key of --tls-key has a passphrase, which nobody can type: write it without, by openssl pkey")
