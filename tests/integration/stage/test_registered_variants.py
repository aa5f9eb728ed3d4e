"""A stage that lists no variants serves the registered ones, and goes on to a new version when it is ready."""

import itertools
import time

import numpy as np
import psutil
import pytest
from sklearn.datasets import load_digits
from sklearn.tree import DecisionTreeClassifier

from spillway.agents.cli.main import run
from spillway.agents.registry.register import register_model
from spillway.producers.models import put

PIPELINE = """
partitions: 2
stages:
  - name: digit
    variants: {{app: {app}, scale: false}}
"""
PIXELS, LABELS = load_digits(return_X_y=True)
PIXELS = PIXELS.astype(np.float32)


def tree():
    return DecisionTreeClassifier(random_state=0).fit(PIXELS[:-300], LABELS[:-300])


def held():
    return PIXELS[-300:], LABELS[-300:]


def registered(one, app, folder):
    return register_model(
        one.settings,
        "tree",
        f"{__name__}:tree",
        app=app,
        validation=f"{__name__}:held",
        repository=folder / "models",
        hardware=["cpu"],
        sizes=(1, 4),
    )


def test_a_registered_model_is_served_and_its_next_version_takes_over(stage, until, unique_name, tmp_path, capsys):
    app = f"t{unique_name[-8:]}"
    one = stage(PIPELINE.format(app=app))
    first = registered(one, app, tmp_path)
    assert [(each.key, each.accuracy > 0.7) for each in first.variants] == [("eager", True), ("onnx", True)]
    assert {each.format for each in first.left_out} == {"bf16", "int8", "onnx-int8"}
    one.start("digit")
    one.gate()
    out = one.reader("outcomes")

    def ask(name, **needs):
        one.send(name, {"x": PIXELS[-1]}, parameters=needs, within=60)
        one.flush()

        def found():
            out.poll()
            return [outcome for headers, outcome in out.outcomes() if headers.request_id == name]

        return until(found)[0]

    told = ask("first", accuracy=0.5)
    flags = told.flags["digit"]
    assert (flags["architecture"], flags["version"], flags["found"], flags["met"]) == ("tree", "1", "active", True)
    assert set(flags["why"]["of"]) == {"tree-v1-eager", "tree-v1-onnx"}
    assert told.outputs["label"] == LABELS[-1]

    def said(*words):
        """What a command prints, in lines of a terminal."""
        code = run(["models", *words, "--bootstrap", one.bootstrap])
        printed = capsys.readouterr().out
        assert all(len(line) <= 80 for line in printed.splitlines() if not line.startswith("files in"))
        return code, printed

    assert said("list", "--app", app)[1].split()[-7:-1] == [
        app,
        "tree",
        "1",
        "2",
        "3",
        f"{first.variants[0].accuracy:.3g}",
    ]
    assert "not built: bf16 on cpu: scikit-learn cannot change its" in said("show", "tree", "--app", app)[1]
    until(lambda: said("why", "first", one.name)[0] == 0)
    answered = flags["variant"]  # the one that was measured faster
    assert answered in flags["why"]["of"]
    assert f"digit: {answered} answered (active)\n  asked: accuracy 0.5" in said("why", "first", one.name)[1]
    assert said("why", "never", one.name)[0] == 1

    put(one.settings, first.model_copy(update={"version": 2, "at": time.time()}))
    asked = (ask(f"again{number}").flags["digit"]["version"] for number in itertools.count())
    until(lambda: next(asked) == "2")
    assert ask("gone", variant="tree-v1-onnx").reason == "bad-input"

    # A version that cannot be loaded takes nothing over; once it is taken back nobody tries any more.
    lost = [each.model_copy(update={"file": "0" * 64 + ".onnx"}) for each in first.variants]
    broken = first.model_copy(update={"version": 3, "variants": tuple(lost)})
    put(one.settings, broken)
    until(lambda: "if the repository is elsewhere on this host" in one.log("digit"))
    assert ask("still").flags["digit"]["version"] == "2"
    assert "version 3" in said("drop", "tree", "--app", app)[1]
    assert ask("back").flags["digit"]["version"] == "2"
    until(lambda: one.committed("digit") == one.ends())


@pytest.mark.nightly
def test_a_front_that_is_killed_amid_upgrades_loses_no_query_and_serves_the_newest(stage, until, unique_name, tmp_path):
    """Three upgrades; the front is killed just after each is registered, while it loads, and once it answers."""
    app = f"u{unique_name[-8:]}"
    one = stage(PIPELINE.format(app=app))
    first = registered(one, app, tmp_path)
    process = psutil.Process(one.start("digit").pid)
    one.gate()
    out = one.reader("egress")
    sent = []

    def ask():
        sent.append(f"q{len(sent)}")
        one.send(sent[-1], {"x": PIXELS[-1]}, parameters={"accuracy": 0.5}, within=120)
        one.flush()

    def versions():
        out.poll()
        return [outcome.flags["digit"]["version"] for _, outcome in out.outcomes()]

    def asks_until(condition):
        until(lambda: (ask(), condition())[1])

    asks_until(versions)
    for version, when in enumerate(("registered", "loading", "answering"), 2):
        put(one.settings, first.model_copy(update={"version": version, "at": time.time()}))
        if when == "loading":
            asks_until(lambda: one.metrics("digit").get("spillway_variant_workers_wanted", 0) > 1)
        elif when == "answering":
            asks_until(lambda wanted=str(version): wanted in versions())
        process.kill()
        process.wait(60)
        process = psutil.Process(one.start("digit").pid)
        asks_until(lambda wanted=str(version): wanted in versions())
    until(lambda: len(versions()) >= len(sent))
    out.settle()
    told = [(headers.request_id, outcome.kind) for headers, outcome in out.outcomes()]
    assert sorted(told) == sorted((each, "prediction") for each in sent)
    assert set(versions()) <= {"1", "2", "3", "4"}
    until(lambda: one.committed("digit") == one.ends())
