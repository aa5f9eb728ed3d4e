"""A served ensemble learns from the truths that clients send: by context, and each truth once."""

import functools
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml

from spillway.agents.learning.learner import Learner
from spillway.agents.learning.selection import Exp4, Observed
from spillway.agents.models.inputs import Inputs
from spillway.agents.models.stateful import Machine
from spillway.lineage.message import PREDICTION
from spillway.producers.client import Client
from spillway.producers.connection import ClientSettings
from spillway.topology.load import load
from tests.acceptance.learning_load import Killer, Load, published
from tests.acceptance.serving import ROOT, command, read_egress, serving
from tests.oracle import outcome_problems
from tests.waiting import PATIENT_SECONDS, until

MODELS = "tests.acceptance.learned_models"


class Stream:
    """Queries at a steady rate while the context is open."""

    def __init__(self, client, pause):
        self.asked = []
        self._client, self._pause, self._stop = client, pause, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_exception):
        self._stop.set()
        self._thread.join()
        for future in self.asked:
            future.result(PATIENT_SECONDS)

    def _run(self):
        while not self._stop.wait(self._pause):
            n = len(self.asked)
            self.asked.append(self._client.submit({"x": n}, request_id=f"q{n}", key=f"k{n}"))

    def problems(self, broker, name, offs):
        """What is wrong with the outcomes; their outputs are the queries' numbers, and one of `offs` more."""
        egress = [each for each in read_egress(broker, f"{name}.egress", "label") if each.request_id.startswith("q")]
        accepted = [f"q{n}" for n in range(len(self.asked))]
        return outcome_problems(
            accepted, egress, lambda i, kind, told: kind == PREDICTION and told - int(i[1:]) in offs
        )


def truths_change_whose_answer_counts(client):
    """Return the token of the last of three truths, of which two were against `right`."""
    first = client.predict({"x": 3}, key="ada")
    assert first.outputs == {"label": 4}  # of two that weigh the same the first one's
    said = first.flags["kind"]
    assert said["members"] == {"wrong": {"p": 1.0, "answer": 4}, "right": {"p": 1.0, "answer": 3}}
    assert (said["confidence"], said["keys"]) == (0.5, {"kind-weights": "ada"})
    token = client.feedback("kind-weights", first, 3).token(PATIENT_SECONDS)
    client.feedback("kind-weights", first, 3)  # the same truth again
    out = client.predict({"x": 5}, key="ada", after=token)
    assert out.flags["kind"]["versions"] == {"kind-weights": [token.epoch, token.n]}
    assert out.outputs == {"label": 5}
    for x in (5, 6):  # a new context begins with what was learned over all, and goes its own way
        out = client.predict({"x": x}, key="bob", after=token)
        assert out.outputs == {"label": 5 if x == 5 else 7}
        token = client.feedback("kind-weights", out, x + 1).token(PATIENT_SECONDS)
    assert client.predict({"x": 7}, key="bob", after=token).outputs == {"label": 8}
    assert client.predict({"x": 7}, key="ada", after=token).outputs == {"label": 7}
    return token


def test_truths_change_whose_answer_counts_and_members_come_and_go(unique_name, broker, tmp_path):
    file = tmp_path / "pipeline.yaml"
    stage = (
        f"name: {unique_name}\nslo: {PATIENT_SECONDS}s\npartitions: 2\nstages:\n  - name: kind\n    ensemble:\n"
        "      selection: {name: %s, eta: 1.0, forgetting: 0.0}\n      context: key\n      members:\n"
    )
    members = {
        name: f'        {name}: {{model: "{MODELS}:Says", arguments: {{off: {off}}}}}\n'
        for name, off in (("wrong", 1), ("right", 0), ("worse", 2))
    }
    file.write_text(stage % "exp4" + members["wrong"] + members["right"])
    spec = load(file).spec
    with serving(file, spec.name, broker, tmp_path, cwd=ROOT) as served:
        with Client(spec, ClientSettings(bootstrap=broker)) as client, Stream(client, 0.04) as stream:
            before = truths_change_whose_answer_counts(client)
            older = client.predict({"x": 3}, key="eve")
            file.write_text(stage % "exp4" + members["right"] + members["worse"])
            code, said = served.change("ensemble", file, "kind", "--why", "a better one")
            assert code == 0, said
            out = client.predict({"x": 5}, key="eve")
            flags = out.flags["kind"]
            assert list(flags["members"]) == ["right", "worse"]
            token = client.feedback("kind-weights", out, 5).token(PATIENT_SECONDS)
            assert token.n == before.n + 1
            token = client.feedback("kind-weights", older, 9).token(PATIENT_SECONDS)  # both were wrong, and one is gone
            file.write_text(stage % "exp3" + members["right"] + members["worse"])
            assert served.change("ensemble", file, "kind")[0] == 0
            out = client.predict({"x": 5}, key="eve", after=token)
            assert len(out.flags["kind"]["members"]) == 1
            code, said = served.change("scale", file, "kind/worse", "2")
            assert code == 0, said
        with published(ClientSettings(bootstrap=broker), spec, "kind-weights") as table:
            # right was behind wrong, which is gone; worse came at the mean of those that stayed, and lost 1; then so
            # did right
            until(lambda: (row := table.find("all")) and row.version >= (token.epoch, token.n), 30.0, "published")
            assert table.find("all").value == {"right": [0.0], "worse": [0.0]}
        status = command("status", spec.name, "--run-dir", served.run_dir).stdout
        assert "members ready: right 1/1, worse 2/2" in status
        assert "its ensemble was changed by" in status
        assert served.stop() == 0, served.logs()
    assert not stream.problems(broker, spec.name, {0, 1, 2})


def test_members_that_all_confuse_classes_are_right_together_once_truths_are_stacked(unique_name, broker, tmp_path):
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        f"name: {unique_name}\nslo: {PATIENT_SECONDS}s\nstages:\n  - name: kind\n    ensemble:\n"
        "      selection: {name: stacked, eta: 1.0}\n      members:\n"
        f'        one: {{model: "{MODELS}:Scores", arguments: {{off: 1}}}}\n'
        f'        two: {{model: "{MODELS}:Scores", arguments: {{off: 2}}}}\n'
    )
    spec, settings = load(file).spec, ClientSettings(bootstrap=broker)
    with serving(file, spec.name, broker, tmp_path, cwd=ROOT) as served, Client(spec, settings) as client:
        told, token = [], None
        for x in range(18):
            outcome = client.predict({"x": x}, after=token)
            told.append(outcome)
            token = client.feedback("kind-weights", outcome, x % 3).token(PATIENT_SECONDS)
            client.feedback("kind-weights", outcome, x % 3)  # the same truth again
        wrong = [int(outcome.outputs["label"].argmax()) != x % 3 for x, outcome in enumerate(told)]
        assert all(wrong[:3])
        assert not any(wrong[-6:])
        assert told[0].flags["kind"]["members"]["two"] == {"p": 1.0, "answer": 2, "scores": [0.1, 0.1, 0.8]}
        model = Learner("kind", ["one", "two"], {"name": "stacked", "eta": 1.0}, "zero_one")
        machine = Machine("again", model)
        for x, outcome in enumerate(told):
            machine.compute([Inputs({"truth": x % 3, "flags": outcome.flags}, {}, "id", "all")])
            machine.update()
        with published(settings, spec, "kind-weights") as table:
            until(lambda: (row := table.find("all")) and row.version >= (token.epoch, token.n), 30.0, "published")
            assert table.find("all").value == model.publish(machine.state["all"])
        served.kill("kind")  # what was learned outlives the front
        assert int(client.predict({"x": 4}, after=token).outputs["label"].argmax()) == 1
        assert served.stop() == 0, served.logs()


def section(selection, **members):
    """An ensemble of models that are off by so much."""
    told = {name: {"model": f"{MODELS}:Says", "arguments": {"off": off}} for name, off in members.items()}
    return {"selection": {"name": selection, "eta": 0.015625, "forgetting": 0.0}, "members": told}


SECTIONS = [
    section("exp4", right=0, wrong=1),
    section("exp4", right=0, wrong=1, worse=2),
    section("exp3", right=0, worse=2),
    section("exp4", worse=2, more=3),
    section("exp4", right=0, more=3),
]


class Learnt:
    """What the learner is to come to, by the rule of docs/selection.md, reckoned anew."""

    def __init__(self):
        self.epoch, self.logs = 0, {}

    def take(self, epoch, served, flags, truth):
        if epoch > self.epoch:
            stay = [self.logs[name] for name in served["members"] if name in self.logs]
            mean = sum(stay) / len(stay) if stay else 0.0
            self.logs = {name: self.logs.get(name, mean) for name in served["members"]}
            self.epoch = epoch
        for name, told in flags["members"].items():
            if name in self.logs and told.get("answer") != truth:
                self.logs[name] -= 0.015625 / (told["p"] if served["selection"]["name"] == "exp3" else 1)
        highest = max(self.logs.values())
        self.logs = {name: value - highest for name, value in self.logs.items()}


@pytest.mark.nightly
def test_a_front_that_is_killed_in_mid_change_comes_back_with_the_change(unique_name, broker, tmp_path):
    file, learnt, older = tmp_path / "pipeline.yaml", Learnt(), []

    def write(of):
        told = {"name": unique_name, "slo": PATIENT_SECONDS, "partitions": 2}
        told["stages"] = [{"name": "kind", "ensemble": of}]
        file.write_text(yaml.safe_dump(told, sort_keys=False))

    write(SECTIONS[0])
    spec, settings = load(file).spec, ClientSettings(bootstrap=broker)
    with serving(file, spec.name, broker, tmp_path, cwd=ROOT) as served:
        with Client(spec, settings) as client, Stream(client, 0.01) as stream:
            for number, of in enumerate(SECTIONS[1:]):
                told = [client.predict({"x": 100 * number + n}) for n in range(6)]
                write(of)
                with ThreadPoolExecutor() as executor:
                    changing = executor.submit(served.change, "ensemble", file, "kind")
                    if number % 2:  # killed as soon as it knows of the change; else before
                        log = served.run_dir / unique_name / "logs" / "kind.0.log"
                        wanted = ", ".join(of["members"])
                        until(lambda log=log, wanted=wanted: f" of {wanted} (" in log.read_text(), 60.0, "it is known")
                    pid = served.kill("kind")
                    served.await_replacement("kind", pid)
                    code, said = changing.result()
                assert code == 0, said
                told += [client.predict({"x": 100 * number + n}) for n in range(6)]
                assert set(told[-1].flags["kind"]["rules"]["members"]) == of["members"].keys()
                told, older = [*told[2:], *older], told[:2]  # some truths come when the next section serves
                for late, outcome in enumerate(told):
                    truth = outcome.outputs["label"] + late % 2
                    token = client.feedback("kind-weights", outcome, truth).token(PATIENT_SECONDS)
                    learnt.take(number + 1, of, outcome.flags["kind"], truth)
        with published(settings, spec, "kind-weights") as table:
            until(lambda: (row := table.find("all")) and row.version >= (token.epoch, token.n), 30.0, "published")
            weights = {name: log for name, (log, *_) in table.find("all").value.items()}
        assert weights == pytest.approx(learnt.logs)
        assert served.stop() == 0, served.logs()
    assert not stream.problems(broker, spec.name, {0, 1, 2, 3})


class Kinds(Load):
    learner = "kind-weights"

    def inputs(self, number):
        return {"x": number}

    def observe(self, client, number, _key):
        """The truth of a query, when it is answered."""
        until(lambda: len(self.asked) > number or self.errors, 60.0, f"query {number} is asked")
        return client.feedback(self.learner, self.asked[number].result(PATIENT_SECONDS), number)


@pytest.mark.nightly
def test_each_query_has_one_outcome_and_each_truth_counts_once_whoever_dies(unique_name, broker, tmp_path):
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        f"name: {unique_name}\nslo: {PATIENT_SECONDS}s\npartitions: 2\nstages:\n  - name: kind\n    ensemble:\n"
        "      selection: {name: exp4, eta: 0.015625, forgetting: 0.0}\n      members:\n"
        f'        wrong: {{model: "{MODELS}:Says", arguments: {{off: 1}}}}\n'
        f'        right: {{model: "{MODELS}:Says", arguments: {{off: 0}}}}\n'
    )
    spec, settings = load(file).spec, ClientSettings(bootstrap=broker)
    table = published(settings, spec, Kinds.learner)
    with serving(file, spec.name, broker, tmp_path, cwd=ROOT) as served, table, Kinds(spec, settings) as both:
        killer = Killer(served, spec.name, Kinds.learner)

        def answered_from_the_table():
            said = both.predict("eve").flags["kind"]
            assert said["versions"][Kinds.learner] is not None
            assert "stale" not in said

        until(lambda: table.find("all") or both.errors, 60.0, "weights are published")
        for what in 2 * ("kind", "primary", "both"):
            both.go_on()
            killer.strike(what, answered_from_the_table)
        answers, taken = both.end()
        assert {answer.kind for answer in answers} == {PREDICTION}
        newest = max((token.epoch, token.n) for *_, token in taken)
        until(lambda: table.find("all").version >= newest, 30.0, "what was acknowledged is published")
        # Sums of these numbers are exact, so the order of the truths does not matter.
        policy, members = Exp4(eta=0.015625, forgetting=0.0), ["wrong", "right"]
        observed = [judged(answers[number].flags["kind"]["members"], number) for number, *_ in taken]
        replayed = functools.reduce(lambda state, each: policy.observe(state, members, each), observed, {})
        assert table.find("all").value == replayed
        assert served.stop() == 0, served.logs()
    assert not both.problems(broker, taken)


def judged(members, truth):
    """What the learner makes of what an outcome tells of the members that were asked."""
    return {name: Observed(said["p"], float(said.get("answer") != truth)) for name, said in members.items()}
