"""What the pipeline knows: documents that come with every Python, so there is nothing to download.

`functions()` are the standard library's functions and classes with their docstrings (what retrieve looks in),
`topics()` the sections of the language reference that `help("topics")` lists (what search looks in).
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pydoc_data.topics
import re
from dataclasses import dataclass

MODULES = (
    "base64", "bisect", "calendar", "collections", "contextlib", "copy", "csv", "datetime", "difflib", "fnmatch",
    "fractions", "functools", "getpass", "glob", "gzip", "hashlib", "heapq", "inspect", "io", "itertools", "json",
    "math", "operator", "os", "os.path", "pathlib", "pprint", "random", "re", "secrets", "shlex", "shutil", "socket",
    "sqlite3", "statistics", "string", "struct", "subprocess", "tempfile", "textwrap", "threading", "time", "timeit",
    "traceback", "urllib.parse", "uuid", "warnings", "zipfile", "zlib",
)  # fmt: skip
LONGEST = 600  # characters of a docstring; of a topic, eight times as many


@dataclass(frozen=True)
class Document:
    """A name to cite and a text to look in."""

    name: str
    text: str


def words(text: str) -> list[str]:
    """The words of a text: lower case, without a plural's s, names split at dots and underscores."""
    found = re.findall(r"[a-z]+|\d+", text.lower())
    return [word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word for word in found]


def sentence(text: str) -> str:
    """The first sentence, on one line."""
    line = " ".join(text.split())
    return re.split(r"(?<=[.!?])\s", line, maxsplit=1)[0]


@functools.cache
def functions() -> tuple[Document, ...]:
    """One document for each public function and class of the modules, by name."""
    found: dict[str, Document] = {}
    for module in MODULES:
        home = importlib.import_module(module)
        for name, member in sorted(vars(home).items()):
            if name.startswith("_") or not (inspect.isroutine(member) or inspect.isclass(member)):
                continue
            if getattr(member, "__module__", None) not in (module, "posixpath", "ntpath", f"_{module}", None):
                continue  # imported from elsewhere
            if inspect.isclass(member) and issubclass(member, BaseException):
                continue
            text = inspect.getdoc(member) or ""
            if len(text) > 20 and not text.startswith(name + "("):
                found[f"{module}.{name}"] = Document(f"{module}.{name}", text[:LONGEST])
    return tuple(found[name] for name in sorted(found))


@functools.cache
def topics() -> tuple[Document, ...]:
    """One document for each topic of the language reference."""
    return tuple(
        Document(name, " ".join(text.split())[: 8 * LONGEST]) for name, text in sorted(pydoc_data.topics.topics.items())
    )
