"""What a stage cannot have together: sections that exclude one another, and what is said of lanes beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spillway.topology.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spillway.topology.reading.fields import StageFields

# By two fields that a stage has: why it cannot have the second. That its model allows a cache, agents check.
_TOGETHER: Final = {
    ("state", "emulated"): (
        "the stage has a state and is emulated, but an emulated model has no state; give it a 'model' with "
        "initialize, compute and update, or drop 'state'"
    ),
    ("state", "cache"): (
        "a model with a state may answer the same query differently later, so its answers cannot be cached; drop "
        "'cache'"
    ),
    ("state", "copies"): "a model with a state must process each query exactly once, on one worker; drop 'copies'",
    ("emulated", "copies"): "an emulated model is a timer, which copies cannot make faster; drop 'copies'",
    ("state", "coding"): (
        "a model with a state answers from that state, which a parity model does not have; drop 'coding'"
    ),
    ("copies", "coding"): "a batch can be copied or coded, not both; drop 'copies' or 'coding'",
    ("state", "tables"): (
        "lineage-stash recomputes batches, which must give the same state, but tables change; look them up in an "
        "earlier stage without a state"
    ),
    ("tables", "cache"): "tables change, so answers cannot be cached; drop 'cache' or 'tables'",
    ("tables", "coding"): (
        "a query with a table's row cannot be coded, as the row is no tensor of it; drop 'coding' or 'tables'"
    ),
}
# Of a stage with lanes: why it does not have these fields.
_BESIDE: Final = {
    "ensemble": {
        "model": "the models belong to the members",
        "emulated": "the models belong to the members",
        "arguments": "each member has its own 'arguments'",
        "version": "each member has its own 'version'",
        "profile": "members are not measured beforehand",
        "state": "its members keep no state, and its weights belong to a learner",
        "cache": "a combined answer cannot be cached, so give each member its own 'cache'",
        "tables": "its members do not report what their answers depend on",
        "copies": "the stage does not wait for a slow member",
        "coding": "the stage does not wait for a slow member",
    },
    "variants": {
        "model": "the models belong to the variants",
        "emulated": "the models belong to the variants",
        "arguments": "each variant has its own 'arguments'",
        "version": "each variant has its own 'version'",
        "profile": "each variant says what it 'takes'",
        "ensemble": "a query is answered by one variant, not by several together",
        "state": "variants keep no state",
        "cache": "the answer depends on the variant, and queries ask for different variants",
        "tables": "variants cannot look up tables",
        "copies": "a query that its variant refuses is routed to another one",
        "coding": "a query that its variant refuses is routed to another one",
    },
}
_LANES: Final = {"ensemble": ("an ensemble", "member", "members"), "variants": ("variants", "variant", "of")}
_OF_WORKERS: Final = ("count", "where", "timeout", "device", "threads", "python", "listen", "tls")


def check_clashes(stage: StageFields) -> Iterator[Problem]:
    """Find what excludes something else that this stage has."""
    for (one, other), text in _TOGETHER.items():
        if stage.read(one) and stage.read(other):
            yield Problem(stage.path(other), text, on_key=True)
    for section, fields in _BESIDE.items():
        if not stage.read(section):
            continue
        what, lane, listed = _LANES[section]
        for name, why in fields.items():
            if name in stage.given:
                text = f"does not apply to a stage with {what}: {why}; drop {name!r}"
                yield Problem(stage.path(name), text, on_key=True)
        for name in _OF_WORKERS:
            if f"workers.{name}" in stage.given:
                there = f"write {name!r} there, as in '{listed}: {{a: {{workers: ...}}}}'"
                text = f"each {lane} has workers of its own; {there}"
                yield Problem(stage.path(f"workers.{name}"), text, on_key=True)
