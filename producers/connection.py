"""How to reach a Kafka cluster: one set of client settings for confluent-kafka and aiokafka alike.

The settings file uses librdkafka's (mostly also Java's) property names, as `key=value` lines or as a flat YAML or JSON
mapping. Only what both clients can honour is taken; anything else is refused by name rather than half applied.
"""

from __future__ import annotations

import difflib
import os
import re
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from spillway.lineage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


_MAPPING_SUFFIXES = frozenset({".yaml", ".yml", ".json"})


def read_properties(file: Path) -> dict[str, str]:
    """The properties in `file` as text; `UsageError` names file and line. No message repeats a value."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read client settings {file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"client settings {file} are not UTF-8 text") from error
    if file.suffix.lower() in _MAPPING_SUFFIXES:
        return _from_mapping(file, text)
    return _from_lines(file, text)


def _from_lines(file: Path, text: str) -> dict[str, str]:
    properties: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        key, separator, value = stripped.partition("=")
        if not separator:
            raise UsageError(f"{file}:{number}: no 'key=value'")
        key = key.strip()
        if key in properties:
            raise UsageError(f"{file}:{number}: {key} is set twice")
        properties[key] = value.strip()
    return properties


def _from_mapping(file: Path, text: str) -> dict[str, str]:
    try:
        content = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506 - makes text only: password 0123 stays 0123
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        raise UsageError(f"{file}{line}: not valid YAML or JSON") from error
    if not content:
        return {}
    if not isinstance(content, dict):
        raise UsageError(f"{file}: not a mapping of property names to values")
    properties: dict[str, str] = {}
    for key, value in content.items():
        if not isinstance(value, str):
            raise UsageError(f"{file}: {key} is not a plain value")
        properties[str(key)] = value
    return properties


BOOTSTRAP_VARIABLE: Final = "SPILLWAY_BOOTSTRAP"  # of the environment
CONFIG_VARIABLE: Final = "SPILLWAY_CLIENT_CONFIG"

BOOTSTRAP = "bootstrap.servers"
PROTOCOL = "security.protocol"
MECHANISM = "sasl.mechanism"
USERNAME = "sasl.username"
PASSWORD = "sasl.password"  # noqa: S105 - a property's name
CA_FILE = "ssl.ca.location"
CERTIFICATE = "ssl.certificate.location"
KEY_FILE = "ssl.key.location"
KEY_PASSWORD = "ssl.key.password"  # noqa: S105 - a property's name
CHECK_HOST = "ssl.endpoint.identification.algorithm"
VERIFY = "enable.ssl.certificate.verification"

SOCKET_TIMEOUT = "socket.timeout.ms"  # what a request may take; links that are slower than its size need more

_ALIASES = {"sasl.mechanisms": MECHANISM}
_CHOICES: dict[str, tuple[str, ...]] = {
    PROTOCOL: ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    MECHANISM: ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
    CHECK_HOST: ("https", "none"),
    VERIFY: ("true", "false"),
}
_FREE = (USERNAME, PASSWORD, CA_FILE, CERTIFICATE, KEY_FILE, KEY_PASSWORD)
_KNOWN = (*_CHOICES, *_FREE, SOCKET_TIMEOUT)
_LEAST_TIMEOUT = 2_000  # milliseconds; a broker may hold an answer back for half a second
# Where no broker can be reached, librdkafka (2.16) starts from the bootstrap addresses again, and requests under way to
# the brokers that it drops then are never answered: with one broker that restarts, a transaction hangs for good,
# whatever the time limit of the call. Without that it finds the same broker again. It is for transactions alone: a
# broker that stops or starts may say that there are none (a cluster of one does), and a client that then does not start
# again is without brokers for good.
TRANSACTIONAL = {"metadata.recovery.strategy": "none"}
# A broker that restarts is back within seconds, and may lead again at once what it led; librdkafka's default backs off
# for up to ten before it connects again, and for a second before it asks again. One that stands still with its
# connections open is given up after 6 s instead of 60: until then all that is under way to it waits, though the cluster
# has long elected other leaders. What a broker holds back on purpose (members of a group that have not come yet) has a
# longer limit of librdkafka's own.
_RECOVERY: dict[str, Any] = {
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 250,
    SOCKET_TIMEOUT: 6_000,
}
_SECRET = frozenset({PASSWORD, KEY_PASSWORD})
_ADDRESS = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})")
_LARGEST_PORT = 65535


class ClientSettings(BaseModel):
    """Where a cluster is and how to authenticate there. Immutable; its repr shows no secret.

    `properties` holds only known keys, with values as librdkafka spells them; `UsageError` names what is wrong.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    bootstrap: str
    properties: dict[str, str] = Field(default_factory=dict)

    @classmethod
    def load(cls, bootstrap: str | None = None, file: Path | None = None) -> ClientSettings:
        """The cluster at `bootstrap` with the properties of `file`.

        Where neither is given, both come from the environment: SPILLWAY_BOOTSTRAP and SPILLWAY_CLIENT_CONFIG. A file
        that names no broker is for the one in SPILLWAY_BOOTSTRAP.
        """
        if bootstrap is None and file is None and os.environ.get(CONFIG_VARIABLE):
            file = Path(os.environ[CONFIG_VARIABLE])
        properties = read_properties(file) if file is not None else {}
        listed = properties.pop(BOOTSTRAP, None)
        chosen = bootstrap or listed or os.environ.get(BOOTSTRAP_VARIABLE)
        if not chosen:
            where = f", and {file} has no {BOOTSTRAP}" if file is not None else ""
            raise UsageError(
                f"no Kafka broker is named{where}: give its address, as in 127.0.0.1:9092 (a command takes it as "
                f"--bootstrap), or set {BOOTSTRAP_VARIABLE}"
            )
        try:
            return cls(bootstrap=chosen, properties=properties)
        except UsageError as error:
            if file is None:
                raise
            raise UsageError(f"{file}: {error}") from error

    @field_validator("bootstrap")
    @classmethod
    def _check_bootstrap(cls, value: str) -> str:
        addresses = [address.strip() for address in value.split(",")]
        for address in addresses:
            match = _ADDRESS.fullmatch(address)
            if match is None or not 0 < int(match[1]) <= _LARGEST_PORT:
                raise UsageError(f"{address!r} is not a broker address: write HOST:PORT, several separated by commas")
        return ",".join(addresses)

    @field_validator("properties")
    @classmethod
    def _check_properties(cls, value: dict[str, str]) -> dict[str, str]:
        return dict(_checked(key, text) for key, text in value.items())

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        given, protocol = self.properties, self.protocol
        for prefix, needed in (("sasl.", "SASL"), ("ssl.", "SSL")):
            idle = sorted(key for key in given if key.startswith(prefix))
            if idle and needed not in protocol:
                raise UsageError(f"{idle[0]} has no effect with {PROTOCOL}={protocol}: set {PROTOCOL} as well")
        if "SASL" in protocol:
            missing = [key for key in (MECHANISM, USERNAME, PASSWORD) if key not in given]
            if missing:
                raise UsageError(f"{PROTOCOL}={protocol} needs {' and '.join(missing)}")
        if (KEY_FILE in given) != (CERTIFICATE in given):
            raise UsageError(f"{KEY_FILE} and {CERTIFICATE} go together: set both or neither")
        return self

    @property
    def protocol(self) -> str:
        """The security protocol in capitals; PLAINTEXT unless told otherwise."""
        return self.properties.get(PROTOCOL, "PLAINTEXT")

    def confluent(self) -> dict[str, Any]:
        """Configuration for any confluent-kafka client; a new dict that the caller may extend."""
        return {BOOTSTRAP: self.bootstrap, **_RECOVERY, **self.properties}

    def aiokafka(self) -> dict[str, Any]:
        arguments: dict[str, Any] = {"bootstrap_servers": self.bootstrap.split(","), "security_protocol": self.protocol}
        if "SASL" in self.protocol:
            arguments |= {
                "sasl_mechanism": self.properties[MECHANISM],
                "sasl_plain_username": self.properties[USERNAME],
                "sasl_plain_password": self.properties[PASSWORD],
            }
        if "SSL" in self.protocol:
            arguments["ssl_context"] = self.ssl_context()
        return arguments

    def ssl_context(self) -> ssl.SSLContext:
        """A TLS context as the properties say: the given authority or the system's, host names checked by default."""
        given = self.properties
        try:
            context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=given.get(CA_FILE))
            if CERTIFICATE in given:
                context.load_cert_chain(given[CERTIFICATE], given[KEY_FILE], given.get(KEY_PASSWORD, ""))
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(f"{key}={given[key]}" for key in (CA_FILE, CERTIFICATE, KEY_FILE) if key in given)
            raise UsageError(f"cannot use the TLS files ({files}): {error}") from error
        if given.get(CHECK_HOST) == "none":
            context.check_hostname = False
        if given.get(VERIFY) == "false":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        yield "bootstrap", self.bootstrap
        yield "properties", {key: "***" if key in _SECRET else text for key, text in self.properties.items()}


def _checked(key: str, text: str) -> tuple[str, str]:
    key = _ALIASES.get(key, key)
    if key not in _KNOWN:
        if key == "sasl.jaas.config":
            raise UsageError(f"property {key} is for Java clients: set {USERNAME} and {PASSWORD} instead")
        close = difflib.get_close_matches(key, _KNOWN, 1)
        hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(_KNOWN))}"
        raise UsageError(f"unknown client property {key!r}: {hint}")
    if key == SOCKET_TIMEOUT:
        if not (text.isdecimal() and int(text) >= _LEAST_TIMEOUT):
            raise UsageError(f"property {key} is {text!r}: give milliseconds, {_LEAST_TIMEOUT} or more")
        return key, text
    if key not in _CHOICES:
        if not text:
            raise UsageError(f"property {key} is empty")
        return key, text
    for choice in _CHOICES[key]:
        if choice.lower() == text.lower():
            return key, choice
    raise UsageError(f"property {key} is {text!r}: use one of {', '.join(_CHOICES[key])}")
