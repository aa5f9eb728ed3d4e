"""`spillway predict --offline` as a user runs it: a file of queries into one of rows, over errors and crashes."""

import asyncio
import functools
import json
import os
import signal
import subprocess
from collections import Counter
from itertools import count

import pytest
from confluent_kafka import Producer

from spillway.producers.client import AsyncClient
from tests.acceptance.serving import SPILLWAY, serving
from tests.waiting import until

MODEL = """
import os
import time


class Noted:
    '''Answers after `seconds`; notes each query that it runs.'''

    def predict(self, batch):
        for inputs in batch:
            time.sleep(inputs.get("seconds", 0.0))
            if inputs["x"] == 13:
                raise RuntimeError("unlucky")
        with open("ran", "a") as ran:
            ran.write("".join(f"{inputs['x']}\\n" for inputs in batch))
        return [{"back": inputs["x"]} for inputs in batch]
"""


@pytest.fixture(scope="module")
def served(broker, tmp_path_factory):
    folder = tmp_path_factory.mktemp("offline")
    name = folder.name
    (folder / "noted.py").write_text(MODEL)
    spec = folder / "pipeline.yaml"
    spec.write_text(
        f"name: {name}\nslo: 1s\npartitions: 2\nstages:\n"
        "  - {name: first, model: 'noted:Noted', policy: pard, batching: {max: 4}}\n"
    )

    class Command:
        def __init__(self):
            self.folder, self.name, self.broker = folder, name, broker

        def start(self, inputs, outputs):
            words = [SPILLWAY, "predict", "--offline", spec, inputs, outputs, "--run-dir", folder / "run"]
            with said_of(outputs).open("w") as said:
                return subprocess.Popen(words, cwd=folder, stderr=said)

        def __call__(self, inputs, outputs):
            code = self.start(inputs, outputs).wait(timeout=300)
            return code, said_of(outputs).read_text()

    with serving(spec, name, broker, folder):
        yield Command()


def said_of(outputs):
    return outputs.with_suffix(".said")


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_query_has_its_row_in_order_and_errors_are_rows(served, tmp_path):
    inputs, outputs = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = [json.dumps({"x": n, "seconds": 0.001}) for n in range(90)]
    lines[20] = "nonsense"
    inputs.write_text("\n".join(lines) + "\n")
    code, said = served(inputs, outputs)
    assert code == 1, said
    assert "90 of 90 rows (100 %)" in said
    rows = rows_of(outputs)
    assert [row["row"] for row in rows] == list(range(90))
    assert rows[13]["error"]["reason"] == "model-raised"
    assert rows[20]["error"]["reason"] == "corrupt"
    good = [row for row in rows if "outputs" in row]
    assert len(good) == 88  # though the SLO is over for all that waited a second
    assert all(row["outputs"] == {"back": row["row"]} for row in good)
    before = outputs.read_bytes()
    assert served(inputs, outputs)[0] == 0  # nothing is left to do
    assert outputs.read_bytes() == before


def test_an_asyncio_client_goes_on_with_a_job_that_it_cancelled(served, tmp_path):
    inputs, outputs = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    inputs.write_text("".join(json.dumps({"x": 200 + n, "seconds": 0.005}) + "\n" for n in range(300)))

    async def twice():
        async with AsyncClient(served.name, served.broker, slo=1.0) as client:
            seen = asyncio.Event()
            asks = functools.partial(client.offline_query, inputs, outputs)
            first = asyncio.create_task(asks(progress=lambda at: seen.set() if at.written else None))
            await asyncio.wait_for(seen.wait(), 60)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            before = len(rows_of(outputs))
            return before, await asyncio.wait_for(asks(), 60)

    before, done = asyncio.run(twice())
    assert 0 < before < done.written == 300
    assert done.before >= before
    assert [row["outputs"]["back"] for row in rows_of(outputs)] == list(range(200, 500))


@pytest.mark.nightly
def test_a_job_that_is_killed_again_and_again_asks_and_writes_each_row_once(served, tmp_path):
    inputs, outputs = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    first, rows = 1_000, 600
    inputs.write_text("".join(json.dumps({"x": first + n, "seconds": 0.01}) + "\n" for n in range(rows)))
    for kill in range(1, 5):
        process = served.start(inputs, outputs)
        until(
            lambda kill=kill: outputs.exists() and len(outputs.read_bytes().splitlines()) >= 100 * kill,
            60,
            f"{100 * kill} rows",
        )
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    code, said = served(inputs, outputs)
    assert code == 0, said
    assert [row["row"] for row in rows_of(outputs)] == list(range(rows))
    assert all(row["outputs"] == {"back": first + row["row"]} for row in rows_of(outputs))
    ran = Counter(int(line) for line in (served.folder / "ran").read_text().splitlines())
    again = {x: times for x, times in ran.items() if first <= x < first + rows and times > 1}
    assert not again  # one that was under way at a kill is known by its id


@pytest.mark.nightly
def test_a_job_pauses_while_online_queries_take_the_workers_time(served, tmp_path):
    inputs, outputs = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    inputs.write_text("".join(json.dumps({"x": 5_000 + n, "seconds": 0.01}) + "\n" for n in range(1_500)))
    process = served.start(inputs, outputs)
    try:
        until(lambda: outputs.exists() and outputs.stat().st_size, 60, "rows")
        load(served, lambda: "pauses: online queries take" in said_of(outputs).read_text())
        assert process.wait(timeout=300) == 0
    finally:
        process.kill()
    said = said_of(outputs).read_text()
    assert "goes on" in said.split("pauses", 1)[1]
    assert "1,500 of 1,500 rows" in said


def load(served, enough):
    """Ask online, for most of the worker's time, until it is enough."""
    producer = Producer({"bootstrap.servers": served.broker})
    numbers = count()

    def asked_enough():
        number = next(numbers)
        producer.produce(
            f"{served.name}.ingress",
            json.dumps({"x": 100_000 + number, "seconds": 0.03}),
            headers={"x-request-id": f"on-{number}", "content-type": "application/json"},
        )
        producer.flush()
        return enough()

    until(asked_enough, 60, "a pause")
