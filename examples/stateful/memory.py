"""What the stages' memory is worth: each recurrent network on held-out streams, remembering, and forgetting each time.

    python -m examples.stateful.memory

Forgetting is the same model with a key of its own for every request, so that it always meets a new stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from agents.models.stateful import run
from examples.stateful import payload, speech, stocks, vision

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Query = dict[str, Any]
TURNS, LIVES = payload.LENGTH, 4
ASKED = range(payload.STREAMS * TURNS * LIVES)


def served(model: Any, queries: Sequence[Query], key: str, *, forgets: bool) -> list[Any]:
    """The answers to queries, in batches of one per stream."""
    given = [{**query, key: f"{query[key]}#{index}"} if forgets else query for index, query in enumerate(queries)]
    cut = [given[at : at + payload.STREAMS] for at in range(0, len(given), payload.STREAMS)]
    return [answer for batch in run(model, cut).outputs for answer in batch]


def words(*, forgets: bool) -> float:
    """Share of the words that were heard, of those that were said."""
    said = served(speech.transcribe(), [payload.talk(index) for index in ASKED], "stream", forgets=forgets)
    wanted = np.stack([payload.heard(index)["words"] for index in ASKED])
    return float((np.stack([answer["words"] for answer in said]) == wanted)[wanted > 0].mean())


def _labelled(make: Callable[[], Any], name: str, wanted: str, classes: Sequence[Any], *, forgets: bool) -> float:
    said = served(make(), [payload.heard(index) for index in ASKED], "stream", forgets=forgets)
    right = 0
    for index, answer in enumerate(said):
        _, seed, at = payload.place(index)
        talk = payload.told(seed)
        truth = int(getattr(talk, wanted)[(at + 1) * speech.CHUNK - 1])
        right += int(classes.index(answer[name]) if classes else answer[name] > 0.5) == truth
    return right / len(ASKED)


def mood(*, forgets: bool) -> float:
    return _labelled(speech.sentiment, "mood", "moods", (), forgets=forgets)


def subject(*, forgets: bool) -> float:
    return _labelled(speech.topic, "subject", "subjects", speech.SUBJECTS, forgets=forgets)


def _tracks(*, forgets: bool) -> list[Any]:
    detect = vision.Detect()
    seen = [
        each
        for start in range(0, len(ASKED), payload.STREAMS)
        for each in detect.predict([payload.frame(start + row) for row in range(payload.STREAMS)])
    ]
    return served(vision.track(), seen, "camera", forgets=forgets)


def label(*, forgets: bool) -> float:
    """Share of the frames whose digit is told right."""
    said = _tracks(forgets=forgets)
    return float(np.mean([answer["label"] == payload.shot(index).label for index, answer in enumerate(said)]))


def later(*, forgets: bool) -> float:
    """How far the foreseen place is off, in pixels, in the mean."""
    tracked = _tracks(forgets=False)
    said = served(vision.foresee(), tracked, "camera", forgets=forgets)
    off = [np.linalg.norm(answer["later"] - payload.shot(index).later) for index, answer in enumerate(said)]
    return float(np.mean(off)) * 24


def following(make: Callable[[], Any], *, forgets: bool) -> float:
    """The mean error of the next return, over the second half of each share's ticks, in per mille."""
    said = served(make(), [payload.tick(index) for index in ASKED], "share", forgets=forgets)
    off = [
        abs(said[index]["next"] - payload.tick(index + payload.STREAMS)["change"])
        for index in ASKED
        if TURNS // 2 <= index // payload.STREAMS % TURNS < TURNS - 1
    ]
    return float(np.mean(off))


def main() -> None:
    torch.set_num_threads(1)
    rows: list[tuple[str, str, Callable[..., float]]] = [
        ("transcribe", "words heard", words),
        ("sentiment", "mood right", mood),
        ("topic", "subject right", subject),
        ("track", "digit right", label),
        ("foresee", "pixels off", later),
        ("lstm", "error, per mille", lambda *, forgets: following(stocks.lstm, forgets=forgets)),
        ("autoregression", "error, per mille", lambda *, forgets: following(stocks.autoregression, forgets=forgets)),
        ("neighbours", "error, per mille", lambda *, forgets: following(stocks.neighbours, forgets=forgets)),
    ]
    print(f"{'stage':16}{'measure':20}{'remembering':>12}{'forgetting':>12}")
    for stage, measure, figure in rows:
        print(f"{stage:16}{measure:20}{figure(forgets=False):12.3f}{figure(forgets=True):12.3f}")


if __name__ == "__main__":
    main()
