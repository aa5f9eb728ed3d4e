"""Parity models of linear models, which are their own."""

import numpy as np

from spillway.agents.coding.card import Card, Tensor, digest_of, weights_file, write_card, write_reference


def write_parity(folder, model, matrix):
    """Write the card of `model`, `module:Class`, which answers {"y": matrix @ x}, with two batches in a group."""
    folder.mkdir()
    rows, columns = matrix.shape
    np.savez(weights_file(folder, 0), w=matrix)
    write_card(
        folder,
        Card(
            model=model,
            model_hash=None,
            k=2,
            row=0,
            encoder="sum",
            architecture=model,
            arguments={},
            inputs={"x": Tensor(dtype="float64", shape=(columns,))},
            outputs={"y": Tensor(dtype="float64", shape=(rows,))},
            weights=digest_of(weights_file(folder, 0)),
            degraded=0.9,
        ),
    )
    write_reference(folder, {"x": np.ones(columns)}, {"y": matrix @ np.ones(columns)})
