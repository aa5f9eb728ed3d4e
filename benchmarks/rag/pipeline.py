"""The RAG pipeline of section 7 of the PARD paper (its Table 2): rewrite -> (retrieve, search) -> generate.

Rewrite and generate run Llama-3-8B on an A100 each, emulated iteration by iteration with the figures below; retrieve
is a vector index in batches; search asks a service on the network, on threads, with a long tail. The outcome is the
generator's first token, due 5 s after the query. Lengths come from conversations: a query's own rewrites its prompt
(a rewrite is `REWRITE_SHARE` as long as an answer), another's, at random, is generated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.rag.engine import TokenEngine, TokenResult
from benchmarks.rag.estimates import Batched, Generate, Own, Prefill, Recent
from benchmarks.rag.generation import TokenProfile
from benchmarks.rag.lengths import LengthsByPrompt
from benchmarks.rag.plan import Batches, Generator, Needs, Queries, Threads, TokenPlan, TokenStage
from benchmarks.rag.policies import Foresight
from spillway.agents.core.policies.fifo import Expired, Naive
from spillway.lineage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from benchmarks.rag.conversation import Conversations
    from spillway.agents.core.policy import Policy, StageView

SLO = 5.0  # to the first token
REWRITE_SHARE = 0.35  # of an answer's length
# Llama-3-8B in 16 bits on an A100: 16 GB of weights at 2 TB/s and the launches; keys and values of about 1,000 tokens
# a sequence; 16 GFLOP a prompt token at 200 TFLOPS; vLLM's default bounds; what 80 GB hold beside the weights.
LLAMA = TokenProfile(alpha=0.010, beta=0.0001, gamma=0.00008, chunk=2048, most=256, kv=430_000)
_PROMPT, _ANSWER = 1155, 211  # tokens on average, for the offline profile of a whole rewrite
_BESIDE = 8  # sequences that run beside it there
_SEARCH_MEDIAN, _SEARCH_SIGMA = 0.45, 0.5  # seconds; lognormal
_TAIL_SHARE, _TAIL_EXPONENT, _TAIL_MOST = 0.02, 1.5, 10.0  # and a few that take up to seconds longer
_SEARCH_MEAN = 0.6

POLICIES = {
    "naive": "drops nothing",
    "reactive": "drops what is past its deadline",
    "local": "drops what this stage's own work alone makes late",
    "proactive": "the paper's: recent averages for rewrite and search, the profile for the prefill",
    "learned": "as proactive, with rewrite lengths learned online by class of prompt length",
    "oracle": "as proactive, with the rewrite's true length",
}


def rag_plan(slo: float = SLO) -> TokenPlan:
    return TokenPlan(
        (
            TokenStage("rewrite", Generator(LLAMA, typical=(_PROMPT, round(_ANSWER * REWRITE_SHARE), _BESIDE))),
            TokenStage("retrieve", Batches(batch=16, alpha=0.020, beta=0.005), ("rewrite",)),
            TokenStage("search", Threads(threads=32, profile=_SEARCH_MEAN), ("rewrite",)),
            TokenStage(
                "generate", Generator(LLAMA, typical=(_PROMPT, 1, _BESIDE), until_first=True), ("retrieve", "search")
            ),
        ),
        slo,
    )


def rag_queries(conversations: Conversations, seed: int) -> Queries:
    rng = np.random.default_rng((seed, 7))
    count = len(conversations.due)
    rewritten = np.maximum(1, np.rint(REWRITE_SHARE * conversations.output)).astype(np.int64)
    other = rng.permutation(count)
    return Queries(
        conversations.due,
        {
            "rewrite": Needs(prompt=conversations.prompt, output=rewritten),
            "search": Needs(seconds=_search(count, rng)),
            "generate": Needs(prompt=conversations.prompt[other] + rewritten, output=conversations.output[other]),
        },
    )


def _search(count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    seconds = rng.lognormal(np.log(_SEARCH_MEDIAN), _SEARCH_SIGMA, count)
    late = (rng.random(count) < _TAIL_SHARE) * rng.pareto(_TAIL_EXPONENT, count)
    return np.minimum(seconds + late, _TAIL_MOST)


def rag_policy(name: str) -> Callable[[StageView, TokenStage], Policy]:
    """Give what makes the policy of a stage. Raises UsageError for a name that is none."""
    if name not in POLICIES:
        raise UsageError(f"there is no policy {name!r} for this pipeline; there are: {', '.join(POLICIES)}")

    def make(view: StageView, stage: TokenStage) -> Policy:
        if name == "naive":
            return Naive(view)
        if name == "reactive":
            return Expired(view)
        return Foresight(view, _own(name, view, stage), alone=name == "local")

    return make


def _own(name: str, view: StageView, stage: TokenStage) -> Own:
    kind = stage.kind
    if isinstance(kind, Batches):
        return Batched(view)
    if isinstance(kind, Threads):
        return Recent(profile=kind.profile)
    if kind.until_first:
        return Prefill(kind.profile)
    if name in ("learned", "oracle"):
        return Generate(kind.profile, LengthsByPrompt() if name == "learned" else None)
    return Recent(profile=kind.duration(1))


def simulate_rag(conversations: Conversations, policy: str, seed: int) -> TokenResult:
    """Run the pipeline once."""
    return TokenEngine(rag_plan(), rag_queries(conversations, seed), rag_policy(policy)).run()
