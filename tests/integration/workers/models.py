"""Models for worker processes: what they do is said in their inputs."""

import os
import signal
import time


class Said(dict):
    """An answer with flags, as a model without Spillway makes it."""

    flags = None


def panic():
    raise BaseException("a panic")  # noqa: TRY002 - as one of Rust comes through PyO3


class Obedient:
    version = "7"

    def predict(self, batch):
        for each in batch:
            do = each.get("do")
            if do == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if do == "hang":
                time.sleep(600)
            if do == "raise":
                raise RuntimeError("told to")
        if any(each.get("do") == "lie" for each in batch):
            return [{}] * (len(batch) + 1)
        if "flags" in batch[0]:
            answers = [Said(n=each["n"]) for each in batch]
            for each, answer in zip(batch, answers, strict=True):
                answer.flags = {"said": {1}} if each["flags"] == "bad" else each["flags"]
            return answers
        if "env" in batch[0]:
            return [{"env": os.environ.get(each["env"])} for each in batch]
        return [
            {
                "pid": os.getpid(),
                "n": each.get("n"),
                "x": each.get("x"),
                "key": each.key,
                "of": eval(each.get("of", "0")),
            }
            for each in batch
        ]


class Broken:
    def __init__(self):
        raise RuntimeError("no weights here")
