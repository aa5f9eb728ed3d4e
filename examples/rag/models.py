"""The four stages' models: rewrite -> (retrieve, search) -> generate.

Rewrite and generate are autoregressive: a batch runs until its longest member has ended, so a member waits for the
others. (Continuous batching, where members join and leave between steps, is simulated: `python -m benchmarks rag`.)
"""

from __future__ import annotations

import random
import time
from typing import Any

from examples.rag.corpus import functions, sentence, topics
from examples.rag.generating import answers
from examples.rag.index import Index
from examples.rag.networks import Language, Rewriter
from examples.rag.training import trained

Batch = list[dict[str, Any]]
PASSAGES = 3


class Rewrite:
    """question -> question, query: the words of it worth looking up."""

    def __init__(self) -> None:
        self.net = trained(Rewriter(), "rewrite")

    def predict(self, batch: Batch) -> Batch:
        questions = [query["question"] for query in batch]
        rewritten = self.net.rewrite([question.lower() for question in questions])
        return [{"question": question, "query": query} for question, query in zip(questions, rewritten, strict=True)]


def passages(index: Index, query: str) -> list[dict[str, Any]]:
    """The best passages: their name, first sentence and score."""
    return [
        {"name": each.name, "text": sentence(each.text), "score": score}
        for score, each in index.search(query, PASSAGES)
    ]


class Retrieve:
    """query -> passages of the standard library's docstrings, by BM25."""

    def __init__(self) -> None:
        self.index = Index(functions())

    def predict(self, batch: Batch) -> Batch:
        return [{"question": query["question"], "passages": passages(self.index, query["query"])} for query in batch]


class Search:
    """query -> passages of the language reference, after the wait that asking a service on the network would take.

    The wait is emulated, with a long tail: most take some 50 ms, one in fifty up to a second. It depends on the query
    only. One request at a time; the stage has several instances, as a thread pool has threads.
    """

    def __init__(self) -> None:
        self.index = Index(topics())

    def predict(self, batch: Batch) -> Batch:
        found = []
        for query in batch:
            seconds = wait(query["query"])
            time.sleep(seconds)
            found.append({"passages": passages(self.index, query["query"])[:1], "emulated_seconds": seconds})
        return found


def wait(query: str) -> float:
    """Seconds that the emulated service takes."""
    draw = random.Random(query)
    seconds = draw.lognormvariate(-3.0, 0.4)
    return min(1.0, seconds + draw.random() if draw.random() < 0.02 else seconds)


class Generate:
    """Joins both branches: the answer, written from the passages, and their names."""

    def __init__(self) -> None:
        self.net = trained(Language(), "generate")

    def predict(self, batch: Batch) -> Batch:
        told = [[*query["retrieve.passages"], *query["search.passages"]] for query in batch]
        texts = answers(
            self.net, [[(each["score"], f"{each['name']}: {each['text']}") for each in own] for own in told]
        )
        return [
            {"question": query["retrieve.question"], "answer": text, "passages": [each["name"] for each in own]}
            for query, text, own in zip(batch, texts, told, strict=True)
        ]
