"""Small pipelines in the paper's JSON form."""

import json

from spillway.topology.load import load


def document(stages, slo_ms=500.0, name="small"):
    """`stages`: (name, alpha in ms, beta in ms, batch, names of predecessors)."""
    ids = {stage[0]: index for index, stage in enumerate(stages)}
    return {
        "pipeline": name,
        "slo_ms": slo_ms,
        "modules": [
            {
                "name": own,
                "id": ids[own],
                "pres": [ids[each] for each in before],
                "subs": [ids[other] for other, *_, others in stages if own in others],
                "alpha_ms": alpha,
                "beta_ms": beta,
                "batch": batch,
            }
            for own, alpha, beta, batch, before in stages
        ],
    }


def pipeline(folder, stages, slo_ms=500.0):
    file = folder / "small.json"
    file.write_text(json.dumps(document(stages, slo_ms)))
    return load(file)
