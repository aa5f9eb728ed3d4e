"""SA, sentiment and subject analysis: chunks of a stream of sound -> words -> its mood, and its subject, so far.

The sounds are made: each word of a small vocabulary is a pattern of FRAMES x BANDS, spoken loud or soft into noise.
A chunk is shorter than a word, so the transcriber has to remember what it heard in the chunks before; mood and subject
are those of the whole stream, with words losing weight as they lie back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.hams.pipelines.weights import Weights, fit, trained
from spillway.agents.models.torch_streams import Streams

if TYPE_CHECKING:
    from numpy.typing import NDArray

BANDS, FRAMES, CHUNK = 12, 4, 3  # of the sound; frames of a word; frames of a request
WORDS = ("fine", "love", "great", "bad", "awful", "sad", "train", "bus", "soup", "bread", "game", "goal")
MOOD = np.array((1, 2, 3, -1, -3, -2, 0, 0, 0, 0, 0, 0), np.float32)
SUBJECTS = ("travel", "food", "sport")
SUBJECT = np.array((-1,) * 6 + (0, 0, 1, 1, 2, 2))
FADES = 0.85  # a word's weight, each word later
WIDTH = 32
Batch = Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Talk:
    """A stream of sound and the truth about it, frame by frame."""

    sound: NDArray[np.float32]  # (frames, BANDS)
    words: NDArray[np.int64]  # (frames,): the word that ends there, from 1; else 0
    moods: NDArray[np.int64]  # (frames,): 1 where the mood so far is good
    subjects: NDArray[np.int64]  # (frames,)


def talk(words: int, seed: int) -> Talk:
    """Somebody talking; the voices are the same for every seed."""
    patterns = np.random.default_rng(0).normal(size=(len(WORDS), FRAMES, BANDS)).astype(np.float32)
    rng = np.random.default_rng(seed)
    about = rng.choice(3, p=rng.dirichlet((1, 1, 1)))
    weight = np.where(about == SUBJECT, 3.0, 1.0)
    said = rng.choice(len(WORDS), words, p=weight / weight.sum())
    loud = rng.uniform(0.6, 1.4, words).astype(np.float32)
    sound = (patterns[said] * loud[:, None, None]).reshape(-1, BANDS)
    sound += rng.normal(0, 0.8, sound.shape).astype(np.float32)
    ends = np.zeros(words * FRAMES, np.int64)
    ends[FRAMES - 1 :: FRAMES] = said + 1
    moods, subjects = _so_far(said)
    return Talk(sound, ends, moods.repeat(FRAMES), subjects.repeat(FRAMES))


def _so_far(said: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    mood, about = 0.0, np.zeros(3)
    moods, subjects = [], []
    for word in said:
        mood = mood * FADES + MOOD[word]
        about = about * FADES + (SUBJECT[word] == np.arange(3))
        moods.append(int(mood > 0))
        subjects.append(int(about.argmax()))
    return np.array(moods), np.array(subjects)


class Transcriber(nn.Module):
    """Sound (n, frames, BANDS) -> logits of the word that ends at each frame (0: none)."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.LSTM(BANDS, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, len(WORDS) + 1)

    def forward(self, sound: Tensor, hidden: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Any]:
        seen, hidden = self.body(sound, hidden)
        return self.head(seen), hidden


class Listener(nn.Module):
    """Words (n, steps), 0 for none -> logits of the classes after each."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.words = nn.Embedding(len(WORDS) + 1, 16)
        self.body = nn.LSTM(16, 32, batch_first=True)
        self.head = nn.Linear(32, classes)

    def forward(self, words: Tensor, hidden: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Any]:
        seen, hidden = self.body(self.words(words), hidden)
        return self.head(seen), hidden


def sound(batch: Batch) -> Tensor:
    return torch.stack([torch.as_tensor(query["sound"]) for query in batch])


def heard(batch: Batch) -> Tensor:
    return torch.stack([torch.as_tensor(query["words"]) for query in batch])


def words(logits: Tensor, batch: Batch) -> list[dict[str, Any]]:
    """The word of each frame (0: none), and the text of those that ended in the chunk."""
    best = logits.argmax(2).numpy()
    return [
        {"stream": query["stream"], "words": row, "text": " ".join(WORDS[word - 1] for word in row if word)}
        for query, row in zip(batch, best, strict=True)
    ]


def mood(logits: Tensor, batch: Batch) -> list[dict[str, Any]]:
    """The chance that the mood is good."""
    return [
        {"stream": query["stream"], "mood": row}
        for query, row in zip(batch, logits[:, -1].softmax(1)[:, 1].tolist(), strict=True)
    ]


def subject(logits: Tensor, batch: Batch) -> list[dict[str, Any]]:
    best = logits[:, -1].argmax(1).tolist()
    return [{"stream": query["stream"], "subject": SUBJECTS[row]} for query, row in zip(batch, best, strict=True)]


def hidden(width: int) -> dict[str, Tensor]:
    """What an LSTM of one layer starts from, for one stream."""
    return {"h": torch.zeros(1, 1, width), "c": torch.zeros(1, 1, width)}


def transcribe(*, untrained: bool = False) -> Streams:
    return Streams(
        lambda: trained(Transcriber(), "transcribe", train, untrained=untrained),
        lambda: hidden(WIDTH),
        key=lambda query: query["stream"],
        inputs=sound,
        answers=words,
    )


def sentiment(*, untrained: bool = False) -> Streams:
    return Streams(
        lambda: trained(Listener(2), "sentiment", train, untrained=untrained),
        lambda: hidden(32),
        key=lambda query: query["stream"],
        inputs=heard,
        answers=mood,
    )


def topic(*, untrained: bool = False) -> Streams:
    return Streams(
        lambda: trained(Listener(3), "topic", train, untrained=untrained),
        lambda: hidden(32),
        key=lambda query: query["stream"],
        inputs=heard,
        answers=subject,
    )


def train() -> Weights:
    """Word at each frame; mood and subject after each word, on the words as they were spoken."""
    talks = [talk(12, seed) for seed in range(300)]
    sound, ends, moods, subjects = (
        torch.from_numpy(np.stack([getattr(each, name) for each in talks]))
        for name in ("sound", "words", "moods", "subjects")
    )
    transcriber = Transcriber()
    fit(transcriber, lambda rows: _entropy(transcriber(sound[rows])[0], ends[rows]), len(talks), 120)
    nets: dict[str, nn.Module] = {"transcribe": transcriber}
    for name, classes, wanted in (("sentiment", 2, moods), ("topic", 3, subjects)):
        nets[name] = _listener(ends, wanted, classes)
    return {name: net.state_dict() for name, net in nets.items()}


def _listener(ends: Tensor, wanted: Tensor, classes: int) -> nn.Module:
    net = Listener(classes)
    fit(net, lambda rows: _entropy(net(ends[rows])[0], wanted[rows]), len(ends), 150)
    return net


def _entropy(logits: Tensor, wanted: Tensor) -> Tensor:
    return functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())
