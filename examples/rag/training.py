"""Trains both networks in seconds, once, and keeps their weights in the user's cache folder."""

from __future__ import annotations

import hashlib
import os
import platform
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from examples.rag import corpus, networks
from examples.rag.networks import Language, Rewriter, encode

SEED = 7
OPENINGS = (
    "how do i", "how can i", "how do you", "how to", "how would one", "what is the way to", "which function can",
    "what does", "what is", "what are", "tell me how to", "show me how to", "i want to", "i need to",
    "can python", "is there a way to", "please explain", "where do i find", "why should i", "could you help me",
)  # fmt: skip
FILLERS = ("a", "an", "the", "my", "some", "of", "in", "with", "for", "to", "from", "two", "python")
CLOSINGS = ("", "", " in python", " please", " do", " with python", " mean")
Report = Callable[[str], None]


def weights_path() -> Path:
    """Where the trained weights are kept: a file named by the sources, and the documents, that made them."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    sources = b"".join(Path(module.__file__ or "").read_bytes() for module in (corpus, networks))
    sources += Path(__file__).read_bytes() + platform.python_version().encode()
    return cache / "spillway" / "rag" / f"{hashlib.sha256(sources).hexdigest()[:16]}.pt"


def question(draw: random.Random, vocabulary: list[str]) -> tuple[str, list[int]]:
    """A made-up question, and the places (from 1) of the characters worth keeping."""
    text, places = draw.choice(OPENINGS), []
    for number in range(draw.randint(1, 4)):
        if draw.random() < 0.5:
            text += " " + draw.choice(FILLERS)
        text += " "
        if number:
            places.append(len(text))  # the space before the word
        word = draw.choice(vocabulary)
        places += range(len(text) + 1, len(text) + 1 + len(word))
        text += word
    return text + draw.choice(CLOSINGS) + draw.choice(("?", "", ".")), places


def vocabulary() -> list[str]:
    """The words that the documents are called by and begin with."""
    keep = {word for each in corpus.functions() for word in corpus.words(each.name + " " + corpus.sentence(each.text))}
    common = {*FILLERS, *" ".join((*OPENINGS, *CLOSINGS)).split()}
    return sorted(word for word in keep if len(word) > 2 and word.isalpha() and word not in common)


def train_rewriter(steps: int = 400) -> Rewriter:
    """Cross entropy of the next place to copy, on questions made up as it goes."""
    draw, known, net = random.Random(SEED), vocabulary(), Rewriter()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    # Steps that shrink: else what it has learned at the last one is chance, and another processor's is another.
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=steps)
    for _ in range(steps):
        made = [question(draw, known) for _ in range(24)]
        read, empty = net.read([encode(text) for text, _ in made])
        last = pad_sequence([torch.tensor([0, *places]) for _, places in made], batch_first=True)
        wanted = pad_sequence([torch.tensor([*places, 0]) for _, places in made], batch_first=True, padding_value=-100)
        scores = net.point(read, empty, last)
        _descend(net, optimizer, functional.cross_entropy(scores.flatten(0, 1), wanted.flatten(), ignore_index=-100))
        schedule.step()
    return net.eval()


def train_language(steps: int = 120, length: int = 64) -> Language:
    """Cross entropy of the next character, on stretches of all documents."""
    net = Language()
    text = encode("\n".join(f"{each.name}: {' '.join(each.text.split())}" for each in corpus.functions()))
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=steps)
    for _ in range(steps):
        starts = torch.randint(len(text) - length - 1, (24,))
        rows = text[starts[:, None] + torch.arange(length + 1)]
        scores, _ = net(rows[:, :-1])
        _descend(net, optimizer, functional.cross_entropy(scores.flatten(0, 1), rows[:, 1:].flatten()))
        schedule.step()
    return net.eval()


def _descend(net: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()


def train(report: Report = lambda _: None) -> dict[str, dict[str, Tensor]]:
    """Trains both from scratch; returns their weights by stage."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)  # networks this small gain little from more, and lose much where cores are shared
    report("rewrite: what of a question is worth looking up")
    rewriter = train_rewriter()
    report("generate: how documentation is written")
    return {"rewrite": rewriter.state_dict(), "generate": train_language().state_dict()}


def ensure_trained(report: Report = lambda _: None) -> Path:
    """The weights file, trained now if this version of the example never was."""
    path = weights_path()
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            torch.save(train(report), file)
        Path(file.name).replace(path)
    return path


def trained(net: nn.Module, stage: str) -> nn.Module:
    """`net` with the trained weights of `stage`, ready to infer."""
    net.load_state_dict(torch.load(ensure_trained(), weights_only=True)[stage])
    return net.eval()
