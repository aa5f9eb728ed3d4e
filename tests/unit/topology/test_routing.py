"""Whom a join hears from and who bears a loss. That the two always fit, `spillway prove` shows on random graphs."""

import pytest

from spillway.lineage.errors import SpecError
from spillway.topology.reading.fields import read_fields
from spillway.topology.routing import Graph
from spillway.topology.rules.structure import check_structure
from spillway.topology.spec import PipelineSpec, StageSpec


def pipeline(*edges, choosers=""):
    """`pipeline("a", "b:a", "c:a", "d:bc", choosers="a")`: stages of one letter, each with its predecessors."""
    return PipelineSpec(
        name="p",
        slo=1.0,
        sinks="all",
        stages=tuple(
            StageSpec(name=edge[0], model="m:M", after=tuple(edge[2:]), choose="m:f" if edge[0] in choosers else None)
            for edge in edges
        ),
    )


DIAMOND = ("a", "b:a", "c:a", "d:bc")


def test_a_chain():
    graph = Graph(pipeline("c:b", "b:a", "a"))
    assert graph.order == ("a", "b", "c")
    assert (graph.roots, graph.sinks) == (("a",), ("c",))
    assert graph.predecessors == {"a": (), "b": ("a",), "c": ("b",)}
    assert graph.successors == {"a": ("b",), "b": ("c",), "c": ()}
    assert graph.expected("b", {}) == ("a",)
    assert graph.expected("a", {}) == ()
    assert graph.terminals({}) == ("c",)
    assert graph.losses("a", {}) == ((None, ("c",)),)
    assert not graph.is_join("b")


def test_a_diamond():
    graph = Graph(pipeline(*DIAMOND))
    assert graph.is_join("d")
    assert graph.expected("d", {}) == ("b", "c")
    assert graph.losses("a", {}) == (("d", ("b", "c")),)
    assert graph.losses("c", {}) == (("d", ("c",)),)
    assert graph.losses("d", {}) == ((None, ("d",)),)


def test_a_loss_before_a_join_and_two_ends():
    graph = Graph(pipeline("a", "b:a", "c:ab", "d:a", "e:d"))
    assert graph.losses("a", {}) == (("c", ("a", "b")), (None, ("e",)))
    assert graph.losses("b", {}) == (("c", ("b",)),)
    assert graph.terminals({}) == ("c", "e")


def test_a_loss_stops_at_the_next_join():
    graph = Graph(pipeline(*DIAMOND, "e:d", "f:de"))
    assert graph.losses("b", {}) == (("d", ("b",)),)
    assert graph.losses("d", {}) == (("f", ("d", "e")),)


def test_two_roots():
    graph = Graph(pipeline("a", "b", "c:ab"))
    assert graph.roots == ("a", "b")
    assert graph.losses("b", {}) == (("c", ("b",)),)


def test_a_choice_decides_whom_a_join_waits_for():
    graph = Graph(pipeline(*DIAMOND, choosers="a"))
    assert graph.is_chooser("a")
    assert graph.expected("d", {"a": ("c",)}) == ("c",)
    assert graph.expected("b", {"a": ("c",)}) == ()
    assert graph.expected("d", {"a": ("c", "b")}) == ("b", "c")
    assert graph.losses("c", {"a": ("c",)}) == (("d", ("c",)),)
    assert graph.losses("a", {"a": ("c",)}) == (("d", ("c",)),)
    assert graph.losses("a", {"a": ()}) == ((None, ("a",)),)


def test_a_request_that_ends_early():
    graph = Graph(pipeline(*DIAMOND, choosers="a"))
    assert graph.terminals({"a": ()}) == ("a",)
    assert graph.expected("d", {"a": ()}) == ()
    assert graph.terminals({"a": ("b",)}) == ("d",)


def test_a_loss_before_a_choice_speaks_for_all_that_could_be_chosen():
    graph = Graph(pipeline("a", "b:a", "c:b", "d:b", "e:cd", choosers="b"))
    for stage in "ab":
        assert graph.losses(stage, {}) == (("e", ("c", "d")),)
    assert graph.expected("e", {}) == ("c", "d")


def test_choosers_within_one_another():
    graph = Graph(pipeline("a", "b:a", "c:a", "d:b", "e:b", "f:de", choosers="ab"))
    assert graph.terminals({"a": ("c",)}) == ("c",)
    assert graph.terminals({"a": ("b",), "b": ("d",)}) == ("f",)
    assert graph.expected("f", {"a": ("b",), "b": ("e",)}) == ("e",)


def test_a_join_may_choose():
    spec = pipeline(*DIAMOND, "e:d", "f:d", "g:ef", choosers="ad")
    problems = []
    fields = read_fields(spec.model_dump(mode="json"), problems)
    assert (problems, [*check_structure(fields)], fields.spec()) == ([], [], spec)
    graph = Graph(spec)
    assert graph.expected("g", {"a": ("b",), "d": ("f",)}) == ("f",)
    assert graph.terminals({"a": ("b",), "d": ()}) == ("d",)
    assert graph.losses("d", {"a": ("b",)}) == (("g", ("e", "f")),)


@pytest.mark.parametrize("path", [{"x": ("y",)}, {"b": ()}, {"a": ("d", "nobody"), "c": ()}, {"": ("",)}])
def test_what_is_no_choice_counts_for_nothing(path):
    graph = Graph(pipeline(*DIAMOND))
    assert graph.expected("d", path) == ("b", "c")
    assert graph.terminals(path) == ("d",)
    assert graph.losses("a", path) == (("d", ("b", "c")),)


def test_the_memory_of_paths_is_bounded():
    graph = Graph(pipeline(*DIAMOND, choosers="a"))
    for number in range(5_000):
        assert graph.expected("d", {"a": ("b",), f"stranger{number}": ()}) == ("b",)
    assert graph._of_path.cache_info().currsize <= 1_024
    assert graph._of_choices.cache_info().currsize == 1


def test_edges_that_are_no_graph():
    with pytest.raises(SpecError, match="stage 'b' comes after an unknown 'x'"):
        Graph(pipeline("a", "b:x"))
    with pytest.raises(SpecError, match="its stages form a cycle"):
        Graph(pipeline("a:b", "b:a"))
    with pytest.raises(SpecError, match="or two have the same name"):
        Graph(pipeline("a", "a"))
