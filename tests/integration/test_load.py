from contextlib import closing

import numpy as np

from spillway.lineage.message import DROPPED, PREDICTION, Outcome
from spillway.producers.client.exchange import Exchange
from spillway.producers.connection import ClientSettings
from spillway.producers.load import generator as load
from spillway.producers.load import schedule
from spillway.producers.load.generator import Pace, run_load
from spillway.producers.report import Report
from tests.waiting import until


def loaded(pipeline, due, pace):
    with closing(Exchange(ClientSettings.load(pipeline.bootstrap), pipeline.name)) as exchange:
        return run_load(exchange, load.generated(due, index_payload), pace)


def index_payload(index, _rng):
    return {"n": index}


def test_every_query_is_sent_when_due_and_told_apart(echo_pipeline):
    pipeline = echo_pipeline()
    seen = {}
    told = []
    due = schedule.poisson(200, 2, np.random.default_rng(3))
    pace = Pace(slo=0.4, grace=90.0, observe=seen.__setitem__, progress=lambda sent, ended: told.append((sent, ended)))
    result = loaded(pipeline, due, pace)
    assert result.errors == {}
    assert {index: outcome.outputs["n"] for index, outcome in seen.items()} == {n: n for n in range(len(due))}
    assert np.all(result.sent >= due)
    assert np.all(result.finished >= result.sent)
    assert told[-1] == (len(due), len(due))
    sent = {headers.request_id: (headers.sent_us, headers.deadline_us) for headers, _, _ in pipeline.heard}
    first = min(sent.values())
    deadlines = np.array(sorted(deadline for _, deadline in sent.values()))
    assert np.allclose(
        np.diff(deadlines) / 1e6, np.diff(due), atol=1e-4
    )  # they keep to the schedule, not to the sending
    assert 0 < first[1] - first[0] <= 400_000


def test_a_stalled_pipeline_does_not_hold_the_load_back(echo_pipeline):
    held = []

    def answer(query, headers):
        held.append(query.inputs)
        if len(held) < 100:
            return []
        return [Outcome(PREDICTION, query.inputs)]

    pipeline = echo_pipeline(answer)
    result = loaded(pipeline, schedule.constant(100, 1.2), Pace(slo=0.5, grace=1.0))
    until(lambda: len(pipeline.heard) == 120, 90)
    without = int((result.kind == 0).sum())
    assert without >= 99  # more where the machine was too slow to hear them, or the answers, within the grace
    assert result.errors == {"OutcomeTimeoutError": without}


def test_the_report_counts_drops_and_duplicates(echo_pipeline):
    def answer(query, headers):
        n = query.inputs["n"]
        outcome = Outcome(DROPPED, reason="expired", stage="a") if n % 4 == 0 else Outcome(PREDICTION, query.inputs)
        return [outcome] * (2 if n % 10 == 1 else 1)

    pipeline = echo_pipeline(answer)
    due = schedule.constant(100, 1)
    result = loaded(pipeline, due, Pace(slo=20.0, grace=90.0, settle=1.0))
    report = Report.build(
        pipeline="p", policy="naive", trace="constant", slo=20.0, duration=1.0, due=result.due,
        finished=result.finished, kind=result.kind, spent=result.spent, slip=result.sent - result.due,
        duplicates=result.duplicates, stages=result.stage_totals(["a"], {"a": 1}),
    )  # fmt: skip
    assert report.outcomes.model_dump() == {"prediction": 75, "dropped": 25, "failed": 0, "missing": 0, "duplicate": 10}
    assert result.reasons == {("dropped", "a", "expired"): 25}
    assert report.stages["a"].dropped == 25
