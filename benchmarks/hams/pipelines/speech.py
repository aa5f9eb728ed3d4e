"""SA, sentiment and subject analysis: chunks of a stream of sound -> words -> its mood, and its subject, so far.

The sounds are made: each word of a small vocabulary is a pattern of FRAMES x BANDS, spoken loud or soft into noise.
A chunk is shorter than a word, so the transcriber has to remember what it heard in the chunks before; mood and subject
are those of the whole stream, with words losing weight as they lie back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.hams.pipelines.weights import Recurrent, Weights, fit, streams

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spillway.agents.models.torch_streams import Streams

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


def transcriber() -> Recurrent:
    """Sound (n, frames, BANDS) -> logits of the word that ends at each frame (0: none)."""
    return Recurrent(BANDS, WIDTH, len(WORDS) + 1)


def listener(classes: int) -> Recurrent:
    """Words (n, steps), 0 for none -> logits of the classes after each."""
    return Recurrent(16, 32, classes, words=len(WORDS) + 1)


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


def transcribe(*, untrained: bool = False) -> Streams:
    return streams(transcriber, "transcribe", train, "stream", sound, words, untrained=untrained)


def sentiment(*, untrained: bool = False) -> Streams:
    return streams(partial(listener, 2), "sentiment", train, "stream", heard, mood, untrained=untrained)


def topic(*, untrained: bool = False) -> Streams:
    return streams(partial(listener, 3), "topic", train, "stream", heard, subject, untrained=untrained)


def train() -> Weights:
    """Word at each frame; mood and subject after each word, on the words as they were spoken."""
    talks = [talk(12, seed) for seed in range(300)]
    sound, ends, moods, subjects = (
        torch.from_numpy(np.stack([getattr(each, name) for each in talks]))
        for name in ("sound", "words", "moods", "subjects")
    )
    nets = {"transcribe": transcriber(), "sentiment": listener(2), "topic": listener(3)}
    for (name, net), seen, wanted in zip(nets.items(), (sound, ends, ends), (ends, moods, subjects), strict=True):
        steps = 120 if name == "transcribe" else 150
        fit(net, partial(_loss, net, seen, wanted), len(talks), steps)
    return {name: net.state_dict() for name, net in nets.items()}


def _loss(net: Recurrent, seen: Tensor, wanted: Tensor, rows: Tensor) -> Tensor:
    return functional.cross_entropy(net(seen[rows])[0].flatten(0, 1), wanted[rows].flatten())
