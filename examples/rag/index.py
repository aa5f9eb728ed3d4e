"""BM25: which documents a query's words speak of, the rare words more than the common ones."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

from examples.rag.corpus import Document, words

K1 = 1.2  # how soon a word's repetition stops to count
B = 0.75  # how much a long document is marked down
NAMED = 3  # times that a word of the name counts


class Index:
    """Documents by word; the words of a name count several times."""

    def __init__(self, documents: tuple[Document, ...]) -> None:
        self.documents = documents
        counts = [Counter(words(each.name) * NAMED + words(each.text)) for each in documents]
        self._lengths = [sum(count.values()) for count in counts]
        self._mean = sum(self._lengths) / max(1, len(counts))
        self._places: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for place, count in enumerate(counts):
            for word, times in count.items():
                self._places[word].append((place, times))

    def search(self, query: str, most: int = 3) -> list[tuple[float, Document]]:
        """The best documents with their scores, the best first; fewer than `most` where fewer have any of the words."""
        scores: dict[int, float] = defaultdict(float)
        for word in dict.fromkeys(words(query)):
            places = self._places.get(word, ())
            rarity = math.log(1 + (len(self.documents) - len(places) + 0.5) / (len(places) + 0.5))
            for place, times in places:
                length = K1 * (1 - B + B * self._lengths[place] / self._mean)
                scores[place] += rarity * times * (K1 + 1) / (times + length)
        best = sorted(scores, key=lambda place: (-scores[place], place))[:most]
        return [(scores[place], self.documents[place]) for place in best]
