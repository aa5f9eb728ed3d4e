"""Ensembles, variants, copies and coding in this process: one right outcome each, whatever of them dies or is slow."""

import numpy as np
import pytest

from spillway import ModelError, Pipeline, UsageError, testing
from tests.parity_models import write_parity

from . import served_models
from .served_models import MATRIX, RUNS

MODELS = served_models.__name__
ENSEMBLE = f"""
ensemble: {{selection: exp4, wait: 50ms, members: {{
  a: {{model: "{MODELS}:Says", workers: {{count: 2}}}}, b: {{model: "{MODELS}:Says"}}}}}}"""
VARIANTS = f"""
variants: {{app: digits, scale: false, of: {{
  fast: {{model: "{MODELS}:Says", architecture: tree, accuracy: .8, takes: {{1: 1ms, 8: 2ms}},
         batch: 8}},
  good: {{model: "{MODELS}:Says", architecture: linear, accuracy: .93, takes: {{1: 200ms}}}}}}}}"""
COPIES = f"""
model: "{MODELS}:Doubles"
workers: {{count: 2, where: process}}
batching: {{size: 4}}
copies: {{workers: 1, model: "{MODELS}:Twice"}}"""


def one(stage, slo="2s"):
    return Pipeline.parse(f"name: p\nslo: {slo}\npartitions: 2\nstages:\n  - name: f\n{indented(stage)}")


def indented(stage):
    return "".join(f"    {line}\n" for line in stage.strip().splitlines())


@pytest.fixture
def coded(tmp_path):
    write_parity(tmp_path / "parity", f"{MODELS}:Linear", MATRIX)
    return f"""
model: "{MODELS}:Linear"
workers: {{count: 4, where: process}}
batching: {{limit: fixed, size: 2}}
coding: {{k: 2, parity: {tmp_path}/parity, group_wait: 20ms}}"""


def vector(number):
    return np.random.default_rng(number).integers(-9, 9, 4).astype(float)


def whatever_dies(stage, kill, query, expected, seeds=4, **options):
    """Serve with all of these killed now and then, and return the outcomes of all seeds."""
    outcomes, deaths = [], dict.fromkeys(kill, 0)
    for seed in range(seeds):
        with testing.serve(one(stage), seed=seed, kill=kill, **options) as pipeline:
            found = dict(pipeline.outcomes(map(query, range(60)), deadline=60.0))
            for number in range(60):
                assert found[number].kind == "prediction", found[number]
                np.testing.assert_equal(found[number].outputs, expected(number))
            outcomes += found.values()
            deaths = {name: count + pipeline.deaths[name] for name, count in deaths.items()}
    assert all(deaths.values()), deaths
    return outcomes


def test_an_ensemble_whose_members_and_front_die():
    kill = ["f", "f.a", "f.b", "gate"]
    outcomes = whatever_dies(ENSEMBLE, kill, lambda n: {"x": n}, lambda n: {"label": n % 7})
    answered = [sum("answer" in each for each in outcome.flags["f"]["members"].values()) for outcome in outcomes]
    assert set(answered) == {1, 2}


def test_variants_of_which_another_answers_while_one_is_dead():
    kill = ["f", "f.fast", "f.good", "gate"]
    outcomes = whatever_dies(VARIANTS, kill, lambda n: {"x": n}, lambda n: {"label": n % 7})
    assert {outcome.flags["f"]["variant"] for outcome in outcomes} == {"fast", "good"}


def test_copies_whose_workers_die_and_those_that_they_stand_in_for():
    kill = ["f", "f.workers", "f.copies"]
    outcomes = whatever_dies(COPIES, kill, lambda n: {"x": n}, lambda n: {"y": 2 * n}, slow="f.workers")
    assert {outcome.timings[-1].model for outcome in outcomes} == {f"{MODELS}:Doubles", f"{MODELS}:Twice"}


def test_a_copy_whose_model_raises_is_no_answer_and_harms_nobody():
    raising = COPIES.replace("Twice", "Raises").replace("Doubles", "Raises")
    with testing.serve(one(raising)) as pipeline:
        outcomes = [pipeline.predict({"x": x}, deadline=60.0) for x in (1, -1, 2, 3)]
        assert [outcome.reason for outcome in outcomes] == ["", "model-raised", "", ""]
        assert pipeline.metrics("f")["spillway_extras_total"] == 4  # its worker goes on


def test_the_copy_of_a_batch_that_takes_long_answers_first():
    hedged = COPIES.replace("workers: 1", "workers: 1, quantile: .9")
    with testing.serve(one(hedged), slow="f.workers") as pipeline:
        outcomes = [pipeline.predict({"x": number}) for number in range(200)]
        assert all(outcome.outputs == {"y": 2 * number} for number, outcome in enumerate(outcomes))
        copied = [outcome for outcome in outcomes if outcome.timings[-1].model == f"{MODELS}:Twice"]
        assert 0 < len(copied) < 100
        assert all(outcome.latency < 0.1 for outcome in copied)


@pytest.mark.parametrize("shared", [False, True])
def test_the_answer_of_a_slow_worker_is_made_of_the_others_and_says_so(coded, shared):
    if shared:
        coded = coded.replace("group_wait", "shared: true, group_wait")
    kill = ["f", "f.workers", "f.parity"]
    outcomes = whatever_dies(
        coded, kill, lambda n: {"x": vector(n)}, lambda n: {"y": MATRIX @ vector(n)}, slow="f.workers"
    )
    flags = [outcome.flags["f"] for outcome in outcomes if outcome.flags]
    assert 0 < len(flags) < len(outcomes)
    assert all(each == {"reconstructed": True, "expected": 0.9} for each in flags)


def test_an_ensemble_goes_on_without_a_member_that_died_and_says_so():
    with testing.serve(one(ENSEMBLE)) as pipeline:
        assert set(pipeline.predict({"x": 9}).flags["f"]["members"]) == {"a", "b"}
        sent = pipeline.submit({"x": 9})
        while not pipeline.deaths["f.b"]:
            pipeline.kill("f.b")
            pipeline.sleep(0.0001)
        outcome = sent.result()
        assert outcome.outputs == {"label": 2}
        assert "answer" in outcome.flags["f"]["members"]["a"]
        assert "answer" not in outcome.flags["f"]["members"].get("b", {})
        pipeline.sleep(1.0)
        assert "answer" in pipeline.predict({"x": 9}).flags["f"]["members"]["b"]


def test_a_variant_answers_that_fits_the_need_and_takes_its_time():
    with testing.serve(one(VARIANTS)) as pipeline:
        fast = pipeline.predict({"x": 9}, {"latency": "100ms"})
        good = pipeline.predict({"x": 9}, {"latency": "1s", "accuracy": "90%"})
        assert fast.outputs == good.outputs == {"label": 2}
        assert (fast.flags["f"]["variant"], good.flags["f"]["variant"]) == ("fast", "good")
        assert fast.latency < 0.1
        assert good.latency > 0.2


def test_the_same_seed_makes_the_same_run():
    def run(seed):
        with testing.serve(one(COPIES), seed=seed, kill=["f", "f.workers"], slow="f.copies") as pipeline:
            found = [outcome.latency for _, outcome in pipeline.outcomes([{"x": x} for x in range(20)], deadline=60.0)]
            return found, pipeline.deaths, pipeline.now

    assert run(3) == run(3) != run(4)


def test_in_real_time_a_batch_takes_what_its_model_takes():
    with testing.serve(one(ENSEMBLE), real_time=True) as pipeline:
        assert pipeline.predict({"x": 9}).outputs == {"label": 2}


def test_a_query_that_ends_its_workers_fails_and_its_neighbours_do_not():
    """Two batches end with it, then it is run singly: what was answered before it stands."""
    RUNS.clear()
    ends = f'model: "{MODELS}:Ends"\nworkers: {{where: process}}\nbatching: {{limit: fixed, size: 4, delay: 20ms}}'
    with testing.serve(one(ends)) as pipeline:
        queries = [{"x": x} for x in (1, -1, 2, 3)]
        outcomes = [each for _, each in pipeline.outcomes(queries, key=lambda _: "k", deadline=60.0)]
        assert [each.outputs for each in outcomes if each.kind == "prediction"] == [{"x": 1}, {"x": 2}, {"x": 3}]
        assert (outcomes[1].kind, outcomes[1].reason) == ("failed", "model-died")
        assert "exit code 3" in outcomes[1].text
        assert pipeline.deaths == {"f": 0, "gate": 0, "f.workers": 3}
    assert [RUNS["ends", x] for x in (1, -1, 2, 3)] == [3, 3, 3, 3]


def test_a_batch_that_takes_longer_than_its_workers_timeout_is_given_up():
    slow = VARIANTS.replace("{1: 200ms}", "{1: 200ms}, workers: {timeout: 100ms}")
    with testing.serve(one(slow)) as pipeline:
        outcome = pipeline.predict({"x": 9}, {"variant": "good"}, deadline=60.0)
        assert (outcome.reason, pipeline.deaths["f.good"]) == ("model-died", 3)


def test_a_member_that_cannot_be_loaded_is_told_when_the_pipeline_begins():
    pipeline = testing.serve(one(ENSEMBLE.replace("Says", "Sys")))
    with pytest.raises(ModelError, match="Sys"), pipeline:
        pass


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"kill": "f.c"}, r"kill: there is no stage 'f\.c' in .*; there are f, gate, f\.a, f\.b"),
        ({"slow": "f"}, r"slow: there is no worker 'f' in .*; there are f\.a, f\.b"),
        ({"slow": "f.a", "real_time": True}, "slow: in real time"),
    ],
)
def test_names_of_workers_are_checked(options, text):
    with pytest.raises(UsageError, match=text):
        testing.serve(one(ENSEMBLE), **options)


@pytest.mark.parametrize("where", ["thread", "process"])
def test_models_code_that_cancels_what_runs_it_ends_the_serving(where):
    cancels = f'model: "{MODELS}:CancelsItself"\nworkers: {{where: {where}}}'
    with pytest.raises(BaseException, match="Cancelled"), testing.serve(one(cancels)):
        pass
