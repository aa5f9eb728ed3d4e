"""Small pipelines of emulated stages."""

import yaml

from spillway.topology.load import parse


def document(stages, slo_ms=500.0):
    """`stages`: (name, alpha in ms, beta in ms, batch, names of predecessors)."""
    made = [
        {
            "name": name,
            "after": list(before),
            "emulated": {"alpha": alpha / 1000, "beta": beta / 1000},
            "batching": {"size": batch},
        }
        for name, alpha, beta, batch, before in stages
    ]
    return yaml.safe_dump({"name": "small", "slo": slo_ms / 1000, "stages": made})


def pipeline(stages, slo_ms=500.0):
    return parse(document(stages, slo_ms))
