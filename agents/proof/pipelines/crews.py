"""What serves the stages of a drawn pipeline: threads, or workers in processes with copies, coding and lanes.

And what happens to these workers: they die, are slow, and members of ensembles come and go.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from spillway.agents.coding.card import Card, Tensor, digest_of, weights_file, write_card, write_reference
from spillway.agents.proof.pipelines.case import Fault, Kind
from spillway.agents.proof.pipelines.models import HASHES, LINEAR, MATRIX, VALUE
from spillway.agents.testing.conditions import name_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from random import Random

    from spillway.agents.proof.pipelines.case import Case

_K: Final = 2  # batches of a group that is coded
_FOLDERS: Final[list[TemporaryDirectory[str]]] = []  # which are deleted when the process ends
_TAKES: Final = {1: "1ms", 64: "1ms"}  # what variants say: their batches take what the case says


def with_crews(case: Case, random: Random) -> Case:
    """Draw workers in processes for some stages, in one of the ways that there are, and what happens to them."""
    stages = {stage["name"]: stage for stage in case.spec["stages"]}
    workers: list[str] = []
    ensembles: list[str] = []
    for name, stage in stages.items():
        if random.random() < 0.5:  # noqa: PLR2004 (a share)
            continue
        fronts = case.replicas[name]
        way = random.choice(_ways(stage, stages, fronts))
        if way == "coding":
            _code(random, stage, fronts)
            case = replace(case, vectors=case.vectors or not stage["after"])
            for before in stage["after"]:
                if stages[before]["model"] == HASHES:
                    stages[before]["arguments"]["vector"] = True
        elif way in ("ensemble", "variants"):
            _divide(random, stage, fronts, way)
        else:
            stage["workers"] |= {"where": "process"}
            if way == "copies":
                stage["copies"] = {"quantile": 0.5} if random.random() < 0.5 else {}  # noqa: PLR2004 (a share)
        workers += _workers(stage)
        ensembles += [name] if way == "ensemble" else []
    if not workers:
        return case
    faults = (*case.faults, *_faults(random, workers, ensembles))
    deaths, stragglers = random.choice((0.0, 0.02, 0.1)), random.choice((0.0, 0.05, 0.15))
    return replace(case, worker_deaths=deaths, stragglers=stragglers, faults=faults)


def _faults(random: Random, workers: Sequence[str], ensembles: Sequence[str]) -> Iterator[Fault]:
    for _ in range(random.choice((0, 1, 3))):
        yield Fault(Kind.WORKER, random.uniform(0.0, 1.5), random.choice(workers))
    for name in ensembles:
        for at in sorted(random.uniform(0.1, 1.5) for _ in range(random.choice((0, 2, 4)))):
            yield Fault(Kind.MEMBERS, at, name)


def _ways(stage: dict[str, Any], stages: dict[str, dict[str, Any]], fronts: int) -> list[str]:
    """Return how a stage may be served; what chooses or splits has more outputs than a code or ensemble makes."""
    ways = ["processes", "copies", "copies"]
    if _is_plain(stage):
        before = [stages[name] for name in stage["after"]]
        ways += ["ensemble", "ensemble"]
        ways += ["variants", "variants"] if fronts == 1 else []
        codes = len(before) < 2 and all("model" in each and _is_plain(each) for each in before)  # noqa: PLR2004
        ways += ["coding", "coding", "coding"] if codes else []
    return ways


def _is_plain(stage: dict[str, Any]) -> bool:
    return not stage.get("arguments", {}).get("options")


def _workers(stage: dict[str, Any]) -> list[str]:
    lanes = [*stage.get("ensemble", {}).get("members", ()), *stage.get("variants", {}).get("of", ())] or [""]
    beside = [lane for lane, section in (("copies", "copies"), ("parity", "coding")) if section in stage]
    return [name_of(stage["name"], lane) for lane in (*lanes, *beside)]


def _code(random: Random, stage: dict[str, Any], fronts: int) -> None:
    stage |= {"model": LINEAR, "arguments": {}}
    stage["workers"] = {"fronts": fronts, "count": fronts * random.choice((1, 2, 3)), "where": "process"}
    release = random.choice(("first", "first", "budget"))
    shared = stage["workers"]["count"] > fronts
    stage["coding"] = {"k": _K, "parity": parity(), "group_wait": "20ms", "release": release, "shared": shared}
    stage.pop("default", None)  # it would be a text, and the code is of vectors


def _divide(random: Random, stage: dict[str, Any], fronts: int, way: str) -> None:
    """Draw several models behind a stage, each with an answer of its own."""
    arguments = {"raises": stage["arguments"]["raises"]}
    lanes = {}
    for lane in ("x", "y", "z")[: random.choice((1, 2, 2, 3))]:
        count = random.choice((1, 1, 2)) * fronts
        own = {"stage": f"{stage['name']}.{lane}.", **arguments}
        lanes[lane] = {"model": HASHES, "arguments": own, "workers": {"count": count}}
    for name in ("model", "arguments", "queue"):
        stage.pop(name, None)
    stage["workers"] = {"fronts": fronts}
    cached = stage.pop("cache", None)
    if way == "variants":
        batching = {name: value for name, value in stage.pop("batching").items() if name == "delay"}
        of = {
            lane: each | {"architecture": lane, "accuracy": 0.9, "takes": _TAKES, "batch": random.choice((1, 4))}
            for lane, each in lanes.items()
        }
        stage |= {"batching": batching, "variants": {"app": "p", "scale": False, "of": of}}
        return
    members = {lane: each | ({"cache": cached} if cached else {}) for lane, each in lanes.items()}
    selection = random.choice(("exp4", "exp4", "exp3"))
    waits = {"wait": "30ms"} if random.random() < 0.5 else {}  # noqa: PLR2004 (a share)
    stage["ensemble"] = {"selection": selection, "answer": VALUE, "members": members, "learn": False} | waits


@cache
def parity() -> str:
    """Return the folder with the parity model of `Linear`, which is written once and lives as long as the process."""
    _FOLDERS.append(TemporaryDirectory(prefix="spillway-proof-"))
    folder, size = Path(_FOLDERS[-1].name), len(MATRIX)
    np.savez(weights_file(folder, 0), w=MATRIX)
    tensors = {VALUE: Tensor(dtype="float64", shape=(size,))}
    write_card(
        folder,
        Card(
            model=LINEAR,
            model_hash=None,
            k=_K,
            row=0,
            encoder="sum",
            architecture=LINEAR,
            arguments={},
            inputs=tensors,
            outputs=tensors,
            weights=digest_of(weights_file(folder, 0)),
        ),
    )
    write_reference(folder, {VALUE: np.ones(size)}, {VALUE: MATRIX @ np.ones(size)})
    return str(folder)
