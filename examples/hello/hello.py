"""The smallest pipeline: one stage, one model."""


class Greet:
    """Greets everyone in the batch."""

    def predict(self, batch: list[dict]) -> list[dict]:
        return [{"greeting": f"Hello, {query['name']}!"} for query in batch]
