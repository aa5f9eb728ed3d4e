"""Truths many at a time, to a served learner: each counts once, whoever dies, and is acknowledged once."""

import json
from itertools import pairwise

from spillway.producers.client import Client
from spillway.producers.client.exchange import OutcomeTimeoutError
from spillway.producers.connection import ClientSettings
from spillway.topology import names
from spillway.topology.load import load
from spillway.topology.topics import egress
from tests.acceptance.learning_load import KEYS, Killer, published
from tests.acceptance.serving import ROOT, command, read_egress, serving
from tests.waiting import PATIENT_SECONDS, until

MODELS = "tests.acceptance.learned_models"
MESSAGES, SIZE, AGAIN = 8, 300, 20  # calls before, and after, the kill; truths of one; and how many of those before


def tokens_of(sent):
    """The tokens of what counts, by id, and the ids of what came before."""
    found, again = {}, set()
    for each in sent:
        try:
            token = each.token(PATIENT_SECONDS)
        except OutcomeTimeoutError:
            again.add(each.id)
        else:
            assert each.id not in found, "acknowledged once"
            found[each.id] = token
    return found, again


def test_each_truth_of_many_counts_once_though_the_primary_is_killed(unique_name, broker, tmp_path):
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text(
        f"name: {unique_name}\nslo: {PATIENT_SECONDS}s\npartitions: 2\n"
        f'stages:\n  - {{name: rank, model: "{MODELS}:Rank", tables: {{user: {{of: taste}}}}}}\n'
        f'learners:\n  - {{name: taste, model: "{MODELS}:Taste", state: {{kind: keyed}}, publish: true}}\n'
    )
    spec, settings = load(pipeline).spec, ClientSettings(bootstrap=broker)
    sent = []
    with (
        serving(pipeline, spec.name, broker, tmp_path, cwd=ROOT) as served,
        published(settings, spec, "taste") as table,
        Client(spec, settings, grace=PATIENT_SECONDS) as client,
    ):

        def send(calls):
            for call in calls:
                numbers = range(call * SIZE - AGAIN if call else 0, (call + 1) * SIZE)  # some of the call before, too
                sent.extend(client.feedback_many("taste", [(KEYS[n % 8], 1, None, f"t{n}") for n in numbers]))

        send(range(MESSAGES))
        sent[0].token(PATIENT_SECONDS)
        Killer(served, spec.name, "taste").strike("primary")
        send(range(MESSAGES, 2 * MESSAGES))
        found, again = tokens_of(sent)
        count = 2 * MESSAGES * SIZE
        assert (found.keys(), len(again)) == ({f"t{n}" for n in range(count)}, (2 * MESSAGES - 1) * AGAIN)
        client.feedback("taste", KEYS[0], 1, feedback_id=f"t{count - 8}")  # one of those; nobody answers
        told = command("train", "feedback", pipeline, "taste", "--lines", lines(tmp_path, count), "--wait",
                       "--bootstrap", broker)  # fmt: skip
        one, two, bad, repeated = map(json.loads, told.stdout.splitlines())
        assert told.returncode == 1
        assert (one["id"], two["id"]) == ("mine", "other")
        assert "line 3: a line must be" in bad["error"]
        assert "line 4: " in repeated["error"]
        assert "was sent before" in repeated["error"]

        def rows():
            rows = [table.find(key) for key in KEYS]
            return rows if all(rows) and sum(row.value["n"] for row in rows) >= count + 2 else None

        until(rows, 60.0, "what was acknowledged is published")
        assert sum(row.value["n"] for row in rows()) == count + 2
        assert all(row.value["n"] == row.value["sum"] for row in rows())
        assert served.stop() == 0, served.logs()
    released = [request_id for request_id, *_ in read_egress(broker, egress(names.learner(spec.name, "taste")), "any")]
    assert all(one != other for one, other in pairwise(sorted(released)))


def lines(folder, count):
    file = folder / "truths.jsonl"
    told = [
        {"truth": 1, "key": KEYS[1], "id": "mine"},
        {"truth": 1, "key": KEYS[2], "id": "other"},
        {"truth": 1, "kye": KEYS[2]},
        {"truth": 1, "key": KEYS[(count - 1) % 8], "id": f"t{count - 1}"},
    ]
    file.write_text("".join(json.dumps(each) + "\n" for each in told))
    return file
