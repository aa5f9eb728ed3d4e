"""Names: which are legal, which are taken, and which one the user may have meant."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_TOPIC: Final = 249  # characters, Kafka's limit
# Topics of the pipeline itself, and the gate: what a stage's topic `<p>.<stage>` or its metrics must not be taken for.
RESERVED: Final = (
    *("ingress", "outcomes", "egress", "dead", "control", "beat", "schemas", "plan", "owners", "feedback", "gate"),
    *("state", "versions", "work", "done", "sizes", "table", "generations", "replies"),
)
STAGE_SUFFIXES: Final = ("state", "versions", "work", "done", "table")  # further topics that a stage may have
_PIPELINE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_STAGE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_REFERENCE: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
MODEL_FILES: Final = ("sklearn", "onnx", "torchscript")  # what a model may be a file of
VELOX: Final = "velox"
_OF_REFERENCES: Final = ("function", VELOX)
_DEVICE: Final = re.compile(r"cpu|cuda(:(0|[1-9]\d{0,2}))?")


def pipeline_name(name: str) -> str:
    """`name`, if topics can be called after it. Raises ValueError that says why not."""
    if not _PIPELINE.fullmatch(name):
        raise _no_part(name, "'_', '-' and '.'")
    if name == "spillway":
        raise ValueError(
            "'spillway' is what the topics of the cluster itself are called; give the pipeline another name"
        )
    longest = max(len(suffix) for suffix in RESERVED)
    if len(name) + 1 + longest > MAX_TOPIC:
        raise ValueError(
            f"{name[:20]!r}... has {len(name)} characters; a Kafka topic name may have {MAX_TOPIC}, so use at most "
            f"{MAX_TOPIC - 1 - longest}"
        )
    return name


def stage_name(name: str) -> str:
    """`name`, if a stage can be called so. Raises ValueError that says why not."""
    if name in RESERVED:
        raise ValueError(
            f"{name!r} is reserved for a topic or role of the pipeline itself; give the stage another name"
        )
    if not _STAGE.fullmatch(name):
        dotted = " (not '.', which separates the pipeline's name from the stage's)" if "." in name else ""
        raise _no_part(name, f"'_' and '-'{dotted}")
    return name


def _no_part(name: str, allowed: str) -> ValueError:
    return ValueError(
        f"{name!r:.80} cannot be part of a Kafka topic name; use letters, digits, {allowed}, and begin with a letter, "
        "a digit or '_'"
    )


def learner(pipeline: str, name: str) -> str:
    """The pipeline of a learner."""
    return f"{pipeline}-{name}"


def weights(stage: str) -> str:
    """The learner of a stage's ensemble."""
    return f"{stage}-weights"


def reference(name: str) -> str:
    """`name`, if it names something in a module. Raises ValueError that says how to write it."""
    if not _REFERENCE.fullmatch(name):
        raise ValueError(f"must be written as module:name, as in 'models:Detector', not {name!r:.80}")
    return name


def model(name: str) -> str:
    """`name`, if a model can be written so: a class, a function or a file. Raises ValueError that says how to."""
    kind, rest = model_parts(name)
    if kind in MODEL_FILES:
        if not rest.strip() or "\0" in rest:
            raise ValueError(f"does not name a file; write it as {kind}:FILE, not {name!r:.80}")
    elif not _REFERENCE.fullmatch(rest):
        files = ", ".join(f"{each}:FILE" for each in MODEL_FILES)
        raise ValueError(
            f"must be written as module:name, as in 'models:Detector', as function:module:name or velox:module:name, "
            f"or as one of {files}, not {name!r:.80}"
        )
    return name


def model_parts(name: str) -> tuple[str, str]:
    """What a model is, and where: of MODEL_FILES and its file; function, velox or '' for a class, and module:name."""
    kind, _, rest = name.partition(":")
    return (kind, rest) if kind in MODEL_FILES or (kind in _OF_REFERENCES and ":" in rest) else ("", name)


def device(name: str) -> str:
    """`name`, if it is a device. Raises ValueError that says how to write it."""
    if not _DEVICE.fullmatch(name):
        raise ValueError(f"must be cpu, cuda or cuda:N, as in cuda:0, not {name!r:.80}")
    return name


def address(text: str) -> str:
    """`text`, if it is an address. Raises ValueError that says how to write it."""
    host_and_port(text)
    return text


def host_and_port(text: str) -> tuple[str, int]:
    """The parts of HOST:PORT; an IPv6 address has brackets. Raises ValueError that says how to write it."""
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not (colon and bare and port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise ValueError(f"must be written as HOST:PORT, as in '0.0.0.0:7443', not {text!r:.80}")
    if bare == host and ":" in host:
        raise ValueError(f"an IPv6 address needs brackets, as in '[::]:7443', not {text!r:.80}")
    return bare, int(port)


def meant(name: str, known: Iterable[str]) -> str:
    """What to say after an unknown `name`: the known one that is nearest, or all of them."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]!r}?"
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")  # noqa: PLR2004 - enough for one line
    return f"known: {shown}" if names else "there are none"
