"""What an autoregressive stage works on, and what its work costs.

A sequence has a prompt, which is read at once or in chunks (the prefill), and an output, of which every iteration of
the running batch brings one token; the prefill's last iteration brings the first. An iteration over `running`
sequences, of whose prompts `prefill` tokens are read meanwhile, takes alpha + beta * running + gamma * prefill
seconds. Sequences join and leave between iterations (continuous batching), so none waits for a batch: t_e = t_b.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf

from spillway.agents.core.request import Path, Request


@dataclass(frozen=True, slots=True)
class TokenProfile:
    """The offline profile of a stage that generates: seconds per part of an iteration, and its bounds."""

    alpha: float  # of an iteration, whatever it holds: the weights are read once
    beta: float  # per running sequence
    gamma: float  # per token of a prompt that is read
    chunk: float = inf  # prompt tokens that an iteration reads at most
    most: float = inf  # running sequences at most
    kv: float = inf  # tokens, of prompts and outputs, that the running sequences may hold together

    def step(self, running: int, prefill: int = 0) -> float:
        return self.alpha + self.beta * running + self.gamma * prefill

    def prefill(self, prompt: int, running: float = 1) -> float:
        """Seconds to the first token of a prompt that is read beside `running` sequences, itself included."""
        return max(1, ceil(prompt / self.chunk)) * (self.alpha + self.beta * running) + self.gamma * prompt


class Generation(Request):
    """A request at a stage that generates. `output` is what only the end tells: no policy but an oracle reads it."""

    __slots__ = ("charged", "first", "held", "left", "mark", "output", "prompt", "since")

    def __init__(
        self,
        request_id: str,
        sent: float,
        deadline: float,
        *,
        prompt: int,
        output: int,
        arrived: float = 0.0,
        partition: int = 0,
        path: Path | None = None,
    ) -> None:
        super().__init__(request_id, partition, sent, deadline, arrived, (), {} if path is None else path)
        self.prompt = prompt
        self.output = output
        self.first = -inf  # when the first token was out
        self.left = 0  # tokens still to be read before the next one comes
        self.held = 0  # output tokens there were when it last began to decode
        self.since = 0  # the batch's count of iterations at that moment
        self.mark = 0.0  # the batch's account at its admission
        self.charged = 0.0  # seconds of execution that were its own

    __eq__ = object.__eq__  # two sequences are never the same one; a set of those that run is kept
    __hash__ = object.__hash__
