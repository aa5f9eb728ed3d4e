"""The two character-level networks. Both generate one character after the other, each from what came before."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

END = 0
ALPHABET = "\x00\n" + "".join(map(chr, range(32, 127)))
CODES = {letter: code for code, letter in enumerate(ALPHABET)}


def encode(text: str) -> Tensor:
    """Characters as numbers; unknown ones are left out."""
    return torch.tensor([CODES[letter] for letter in text if letter in CODES], dtype=torch.long)


class Rewriter(nn.Module):
    """A pointer network: reads a question and copies of it, character by character, what is worth looking up.

    Each step points at the next character to copy, or at the end (place 0), given how well the characters there and
    around go with those around the one copied last, and how far away they are.
    """

    REACH = 24  # a farther step is as good as this one

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(ALPHABET), width)
        self.reader = nn.ModuleList(nn.Conv1d(width, width, 7, padding=3) for _ in range(3))
        self.fit = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        self.step = nn.Embedding(2 * self.REACH + 1, 1)

    def read(self, questions: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Questions, each with the end mark put before it -> (n, length, width), and which places are padding."""
        marked = [torch.cat((torch.tensor([END]), question)) for question in questions]
        seen = self.letters(pad_sequence(marked, batch_first=True)).transpose(1, 2)
        empty = torch.arange(seen.shape[2])[None] >= torch.tensor([len(each) for each in marked])[:, None]
        for layer in self.reader:
            seen = (seen + torch.relu(layer(seen))).masked_fill(empty[:, None], 0.0)
        return seen.transpose(1, 2), empty

    def point(self, read: Tensor, empty: Tensor, last: Tensor) -> Tensor:
        """Given places that were copied (n, steps), score the ones to copy next: (n, steps, length)."""
        copied = read.gather(1, last[:, :, None].expand(-1, -1, read.shape[2]))
        away = torch.arange(read.shape[1])[None, None] - last[:, :, None]
        near = self.step(away.clamp(-self.REACH, self.REACH) + self.REACH).squeeze(3)
        scores = self.fit(copied) @ read.transpose(1, 2) / read.shape[2] ** 0.5 + near
        return scores.masked_fill(empty[:, None], float("-inf"))

    @torch.inference_mode()
    def rewrite(self, questions: list[str], most: int = 60) -> list[str]:
        """Generate for a batch: it runs until the longest of them has ended."""
        codes = [encode(question) for question in questions]
        read, empty = self.read(codes)
        last = torch.zeros(len(codes), 1, dtype=torch.long)
        out, running = [""] * len(codes), [True] * len(codes)
        for _ in range(most):
            last = self.point(read, empty, last).argmax(2)
            for row, place in enumerate(last[:, 0].tolist()):
                running[row] = running[row] and place > 0
                if running[row]:
                    out[row] += ALPHABET[int(codes[row][place - 1])]
            if not any(running):
                break
        return out


class Language(nn.Module):
    """A recurrent language model of documentation: the chance of the next character."""

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(ALPHABET), width)
        self.body = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, len(ALPHABET))

    def forward(self, codes: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(n, steps) -> (n, steps, letters), and the new state."""
        seen, state = self.body(self.letters(codes), state)
        return self.head(seen), state
