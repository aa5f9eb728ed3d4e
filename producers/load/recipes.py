"""Recipes of traces, as words: phases that follow one another, and streams of phases, `+` between them, that add up.

A phase is `process:field=value,...`. `150..250` moves on a straight line over the phase, `50/300` is a value for each
state. cv2 is the variance of gaps by the square of their mean: the CV of InferLine, the square of the usual one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from spillway.lineage.errors import UsageError
from spillway.producers.load import processes
from spillway.topology import quantities

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    _Legs = Callable[[np.random.Generator], Iterable[processes.Leg]]  # of one phase; only `mmpp` draws

_FORMS: Final = {
    "poisson": "poisson:rate=100..200,for=60s",
    "gamma": "gamma:rate=100..200,cv2=1..4,for=60s",
    "mmpp": "mmpp:rate=50/300,stay=20s/2s,for=10min",
    "diurnal": "diurnal:rate=50..200,period=24h,cv2=1,for=24h",
}
"""Processes, each with a phase that has all its fields; numbers without '..' stay as they are, cv2 may be left out."""


def make(words: Iterable[str], seed: int) -> NDArray[np.float64]:
    """Arrivals of a recipe, sorted, in seconds; each stream has a generator of its own, drawn from `seed`.

    Raises UsageError naming the phase or stream and how to write it.
    """
    streams: list[list[_Legs]] = [[]]
    for number, word in enumerate(words, start=1):
        if word == "+":
            streams.append([])
        else:
            streams[-1].append(_phase(f"phase {number}: {word!r:.80}", word))
    found = []
    for number, seeds in enumerate(np.random.SeedSequence(seed).spawn(len(streams)), start=1):
        rng = np.random.default_rng(seeds)
        legs = [leg for phase in streams[number - 1] for leg in phase(rng)]
        if not legs:
            raise UsageError(
                f"stream {number} has no phase: write a phase such as {_FORMS['gamma']} on each side of a '+'"
            )
        try:
            found.append(processes.arrivals(legs, rng))
        except UsageError as error:
            raise UsageError(f"stream {number}: {error}") from error
    return np.sort(np.concatenate(found))


def _phase(place: str, word: str) -> _Legs:
    process, _, fields = word.partition(":")
    form = _FORMS.get(process)
    if form is None:
        raise UsageError(f"{place} does not name an arrival process; write it as in {', '.join(_FORMS.values())}")
    known = dict(_pairs(form.partition(":")[2]))
    given = list(_pairs(fields))
    names = [name for name, _ in given]
    for wrong, what in (
        ([name for name in names if name not in known], "is not a field of it"),
        ([name for name in names if names.count(name) > 1], "is given twice"),
        ([name for name in known if name not in names and name != "cv2"], "is missing"),
    ):
        if wrong:
            raise UsageError(f"{place}: {wrong[0]!r} {what}; write it as in {form}")
    try:
        return _legs(process, {name: tuple(_numbers(process, name, value)) for name, value in given})
    except ValueError as error:
        raise UsageError(f"{place}: {error}; write it as in {form}") from error


def _legs(process: str, values: dict[str, tuple[float, ...]]) -> _Legs:
    rate, (duration,), cv2 = values["rate"], values["for"], values.get("cv2", (1.0,))
    ends = (cv2[0], cv2[-1])
    if process == "mmpp":
        stays = values["stay"]
        if not 1 < len(rate) == len(stays):
            raise ValueError("there must be two states or more, each with its rate and its stay")
        return lambda rng: processes.mmpp(rate, stays, duration, rng)
    if process == "diurnal":
        return lambda _: processes.diurnal(rate[0], rate[-1], values["period"][0], duration, ends)
    return lambda _: (processes.Leg(duration, (rate[0], rate[-1]), ends),)


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        yield name.strip(), value.strip()


def _numbers(process: str, name: str, text: str) -> Iterator[float]:
    timed = name in {"for", "stay", "period"}
    by_state = process == "mmpp" and name != "for"
    for part in text.split("/") if by_state else (text,) if timed else text.split("..", 1):
        try:
            number = float(part)
        except ValueError:
            number = quantities.duration(part) if timed else math.nan
        if not 0 <= number < math.inf or (timed and not number):
            raise ValueError(f"{name} is {part!r:.40}, not a number {'above 0' if timed else 'of 0 or more'}")
        yield number
