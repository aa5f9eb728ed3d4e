"""Answers written character by character, by the language model and by what the passages say.

What was written last is looked up in the passages, the longest stretch that is found there counts: the characters that
follow it there share most of the chance of the next one, in proportion to their passages' scores; the language model
has the rest. So the answer follows the passages, and the network fills in where they leave off.
"""

from __future__ import annotations

from collections import defaultdict

import torch

from examples.rag.networks import ALPHABET, CODES, Language

ORDER = 12  # characters looked up at most
FROM_PASSAGES = 0.9  # of the chance, where anything was found
MOST = 160  # characters of an answer
START = "\n"


class Followers:
    """Which characters follow a stretch of the passages, and with what weight."""

    def __init__(self, passages: list[tuple[float, str]]) -> None:
        self._after: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
        for score, text in passages:
            whole = START + "".join(letter for letter in text if letter in CODES and letter != "\x00") + "\n"
            for place in range(1, len(whole)):
                for length in range(1, min(ORDER, place) + 1):
                    self._after[whole[place - length : place]][CODES[whole[place]]] += score**2

    def chances(self, written: str) -> torch.Tensor | None:
        """The next character's chances by the longest stretch known; None where not even the last one is known."""
        for length in range(min(ORDER, len(written)), 0, -1):
            found = self._after.get(written[-length:])
            if found:
                chances = torch.zeros(len(ALPHABET))
                for code, weight in found.items():
                    chances[code] = weight
                return chances / chances.sum()
        return None


@torch.inference_mode()
def answers(net: Language, passages: list[list[tuple[float, str]]]) -> list[str]:
    """Write an answer from each list of (score, text), as one batch: it runs until the longest one has ended."""
    followers = [Followers(each) for each in passages]
    written = [START] * len(passages)
    running = [bool(each) for each in passages]
    state = None
    for _ in range(MOST):
        if not any(running):
            break
        codes = torch.tensor([[CODES[text[-1]]] for text in written])
        scores, state = net(codes, state)
        for row, own in enumerate(torch.softmax(scores[:, -1], 1)):
            if not running[row]:
                continue
            told = followers[row].chances(written[row])
            chances = own if told is None else FROM_PASSAGES * told + (1 - FROM_PASSAGES) * own
            letter = ALPHABET[int(chances.argmax())]
            running[row] = letter not in "\n\x00"
            written[row] += letter if running[row] else ""
    return [text.strip() for text in written]
