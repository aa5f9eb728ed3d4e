"""A pipeline with states, served by the command, under a steady load, its topics recorded: what faults are done to.

    with Run(bench, shape, seed) as run:
        run.load()                    # queries begin to come
        run.kill(run.primary("a"))    # whatever goes wrong
        print(run.judged())           # all answered, drained, and held against the oracle

Everything waits for conditions, within bounds; a fault comes when so many queries were answered, not after a time.
"""

import os
import signal
import subprocess
import threading
import time
from collections import Counter, defaultdict
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import pairwise

import psutil
import yaml
from confluent_kafka.admin import AdminClient

from spillway.agents.live.topics import ensure
from spillway.agents.supervise.registry import entries
from spillway.lineage import headers
from spillway.lineage.errors import WireError
from spillway.lineage.replication import Base
from spillway.lineage.values.replication import ReplicationDecoder
from spillway.producers.connection import ClientSettings
from spillway.topology import topics
from spillway.topology.load import load
from tests.acceptance.serving import ROOT, SPILLWAY, serving
from tests.state_oracle import Judge
from tests.state_topics import Recorder
from tests.torture.arming import give_order, who_took
from tests.torture.compaction import compact_fiercely, left_problems
from tests.torture.front import Front
from tests.torture.load import ANSWER_SECONDS, BACKLOG_SECONDS, PARTITIONS, SLO, Load
from tests.torture.models import USERS
from tests.torture.shapes import BATCH
from tests.waiting import until

SLOW = 0.04  # seconds of a batch, where there is to be a backlog
_SHORT_QUEUE = 64  # what a stage holds then: so reading is paused all the time
_TRICKLE = 20.0  # queries a second after the backlog's, of about 200 that are done


@dataclass
class Verdict:
    problems: list[str]
    longest_gap: float = 0.0  # seconds without an outcome, from the fault on
    slowest: float = 0.0  # seconds from a query's sending to its outcome
    seconds: float = 0.0  # of the whole run
    queries: int = 0
    epochs: dict[str, int] = field(default_factory=dict)
    at: float | None = None  # unix seconds of the first fault


class Run:
    """One pipeline, from its start to its judgement. A context manager."""

    def __init__(
        self, bench, name, shape, folder, *, through_link=False, compacted=False, backlog=False, options=(), **arguments
    ):
        """`through_link`: all of its processes are behind the proxy. `arguments`: of every stage's model.

        `backlog`: stages are slow and their queues short, and `load` begins with more than they do in 20 s.
        """
        self.compacted, self.backlog, self._options = compacted, backlog, options
        self.bench, self.shape, self.folder, self.name = bench, shape, folder, name
        self.bootstrap = bench.bootstrap if through_link else bench.broker.bootstrap
        self.orders = folder / "orders"
        stages = []
        for stage in shape.stages:
            of_model = {"orders": str(self.orders)}
            if stage["model"].endswith((":Chain", ":Dice")):
                of_model |= arguments
            if backlog:  # a later stage is as slow as two before it, so that work waits before each
                of_model["seconds"] = SLOW if stage["after"] else SLOW / 2
            queue = {"queue": _SHORT_QUEUE} if backlog else {}
            stages.append({**stage, **queue, "arguments": {**stage.get("arguments", {}), **of_model}})
        learns = {"stages": [shape.front], "learners": stages} if shape.front else {"stages": stages}
        spec = {"name": name, "slo": SLO, "partitions": PARTITIONS, **learns, **shape.more}
        self.path = folder / "pipeline.yaml"
        self.path.write_text(yaml.safe_dump(spec, sort_keys=False))
        self.pipeline, self.front = load(self.path), None
        if shape.front:  # what is struck and judged is the learner
            learner = shape.stages[0]["name"]
            self.front = Front(bench.broker.bootstrap, self.pipeline, learner)
            self.pipeline = self.pipeline.learner(learner)
            self.name = self.pipeline.spec.name
        self.began = time.monotonic()
        self.faulted = None
        self._seen = Counter()  # records by topic
        self._reigns = defaultdict(list)
        self._answers = set()
        self._stack = ExitStack()
        self._beside = []
        self._load = None

    # How it begins and ends ------------------------------------------------------------------------------------

    def __enter__(self):
        settings = ClientSettings(bootstrap=self.bench.broker.bootstrap)
        ensure(settings, topics.topic_plan(self.pipeline.spec))
        self.recorder = Recorder(self.bench.broker.bootstrap, self.pipeline)
        self._stack.callback(self.recorder.close)
        if self.front is not None:
            self.front.begin()
            self._stack.callback(self.front.close)
        self.serve()
        if self.compacted:  # the topics were checked at the start
            compact_fiercely(self.bench.broker.bootstrap, self.pipeline)
        return self

    def serve(self):
        self.served = self._stack.enter_context(
            serving(self.path, self.name, self.bootstrap, self.folder, "--plan-period", "0.5", *self._options, cwd=ROOT)
        )

    def second_gate(self):
        """Have another gate serve beside the one of the command, as an orchestrator starts it."""
        command = [SPILLWAY, "serve", self.path, "--gate", "--replica", "1", "--bootstrap", self.bootstrap]
        with (self.folder / "gate.1.log").open("wb") as out:
            where = ["--run-dir", self.served.run_dir]
            self._beside.append(subprocess.Popen([*command, *where], stdout=out, stderr=out, cwd=ROOT))
        until(lambda: any(e.name == "gate.1" and e.ready for e in self.entries()), 60, "a second gate is ready")

    def __exit__(self, kind, error, trace):
        for entry in self.entries():
            if entry.alive():
                os.kill(entry.pid, signal.SIGCONT)
        if self._load is not None:
            self._load.abandon()
        for process in self._beside:
            process.kill()
        self._stack.close()

    def forget(self):
        """Delete the topics: what is left of a run must not weigh on those that follow."""
        admin = AdminClient({"bootstrap.servers": self.bench.broker.bootstrap})
        for future in admin.delete_topics([topic.name for topic in topics.topic_plan(self.pipeline.spec)]).values():
            future.result(ANSWER_SECONDS)
        if self.front is not None:
            self.front.forget()

    def load(self, count=300, rate=100.0):
        burst = round(BACKLOG_SECONDS * BATCH / SLOW) if self.backlog else 0
        rate = _TRICKLE if self.backlog else rate
        users = 0 if self.front is None else USERS
        self._load = Load(self.bench.broker.bootstrap, self.name, rate=rate, count=count, burst=burst, users=users)
        if self.front is not None:
            self.front.load(rate, count)
        return self._load

    def judged(self):
        assert self._load is not None
        accepted = self._load.enough()
        problems = []
        try:
            self.answered(len(accepted), ANSWER_SECONDS)
        except AssertionError as error:
            problems.append(str(error))
        if self.front is not None:
            problems += self.front.problems(self.recorder.recording, accepted)
        epochs = {stage: self.base(stage).epoch for stage, _ in self.pipeline.spec.places}
        for process in self._beside:
            process.terminate()
            until(lambda process=process: process.poll() is not None, 60, "what was started beside has ended")
        code = self.served.stop()
        if code:
            problems.append(f"spillway serve ended with {code}")
        recording = self.recorder.finish()
        problems += Judge(recording, random=self.shape.random, refusing=self.shape.refusing).problems(accepted)
        if self.compacted:
            problems += left_problems(self.bench.broker.bootstrap, recording)
        return Verdict(
            problems,
            *self._times(recording),
            seconds=time.monotonic() - self.began,
            queries=len(accepted),
            epochs=epochs,
            at=self.faulted,
        )

    # What is looked at -----------------------------------------------------------------------------------------

    def entries(self):
        """What the processes have said of themselves, dead ones included."""
        found = entries(self.served.run_dir, self.name)
        return found if self.front is None else found + entries(self.served.run_dir, self.front.name)

    def process(self, label):
        found = [entry for entry in self.entries() if entry.name == label and entry.alive()]
        assert found, f"{label} is not there; there are {[entry.name for entry in self.entries()]}"
        return found[0]

    def base(self, stage):
        """The newest reign of a stage's first shard; the first is waited for."""
        until(lambda: self._bases(stage), 60, f"somebody begins to reign over {stage}")
        return max(self._bases(stage), key=lambda base: base.epoch)

    def _bases(self, stage):
        for record in self._news(topics.versions(self.name, stage)):
            if record.partition == 0 and (record.key or b"").startswith(b"base/") and record.value is not None:
                base = ReplicationDecoder().record(record.value)
                assert isinstance(base, Base)
                self._reigns[stage].append(base)
        return self._reigns[stage]

    def _news(self, topic):
        """What has been recorded of a topic since it was asked last: looking is not to cost more than the run."""
        records = self.recorder.recording.topics[topic]
        seen, self._seen[topic] = self._seen[topic], len(records)
        return records[seen : self._seen[topic]]

    def primary(self, stage):
        """The name of the process that reigns over a stage's first shard."""
        return self.base(stage).claimant.rpartition("@")[0].removeprefix(f"{self.name}.")

    def backup(self, stage):
        primary = self.primary(stage)
        return next(f"{stage}.0.{member}" for member in range(2) if f"{stage}.0.{member}" != primary)

    @property
    def stateful(self):
        return [stage for stage, _ in self.pipeline.spec.places]

    def sent(self, stage):
        """How many messages a stage that is the last has sent."""
        assert not self.pipeline.graph.successors[stage]
        return len(self.recorder.recording.topics[topics.outcomes(self.name)])

    def until(self, condition, what, seconds=60.0):
        until(condition, seconds, what)

    def count(self):
        news = self._news(topics.egress(self.name))  # of a learner several have one key
        self._answers.update(headers.decode(record.headers).request_id for record in news)
        return len(self._answers)

    def answered(self, count, seconds=60.0):
        until(lambda: self.count() >= count, seconds, f"{count} outcomes of {self.name}, where {self.count()} are out")

    def go_on(self, count=40, seconds=60.0):
        self.answered(self.count() + count, seconds)

    def reigns_anew(self, stage, than, seconds=60.0):
        until(lambda: self.base(stage).epoch > than, seconds, f"a reign over {stage} after epoch {than}")

    # What is done to it ----------------------------------------------------------------------------------------

    def order(self, label, point):
        """Have a process die at a crash point, from its start on; before the run begins."""
        stage, shard, member = label.split(".")
        give_order(self.orders, f"{stage}.{int(shard) * 2 + int(member)}", point)

    def signal(self, *labels, number=signal.SIGKILL):
        """Send a signal to processes, one right after the other; gives their ids."""
        found = [self.process(label).pid for label in labels]
        if self.faulted is None:
            self.faulted = time.time()
        for pid in found:
            os.kill(pid, number)
        return found

    def ordered(self):
        """The process that was told to die at a crash point: its name and id."""
        until(lambda: who_took(self.orders), 60, "a process takes its order")
        taken = who_took(self.orders)
        assert taken is not None
        stage, replica = taken[0].split(".")
        return f"{stage}.{int(replica) // 2}.{int(replica) % 2}", taken[1]

    def watch(self, pid):
        """Note when a process ends, which was told to at a crash point, as the moment of the fault."""

        def wait():
            with suppress(psutil.Error):
                psutil.Process(pid).wait(ANSWER_SECONDS)
                self.faulted = time.time()

        threading.Thread(target=wait, daemon=True).start()

    def dies(self, label, of, seconds=60.0):
        """Wait for the process `of` to end, which was told to at a crash point."""
        until(lambda: not psutil.pid_exists(of), seconds, f"{label} comes by its crash point")

    def kill(self, *labels):
        return self.signal(*labels)

    # Inside ----------------------------------------------------------------------------------------------------

    def _times(self, recording):
        """The longest time without an outcome from the fault on, and the longest that a query had to wait."""
        egress = recording.topics[topics.egress(self.name)]
        since = 0.0 if self.faulted is None else self.faulted
        moments = [since, *(record.at_ms / 1_000 for record in egress if record.at_ms / 1_000 > since)] if since else []
        moments.sort()
        gaps = [after - before for before, after in pairwise(moments)]
        waits = []
        for record in egress:
            try:
                waits.append(record.at_ms / 1_000 - headers.decode(record.headers).sent_us / 1e6)
            except WireError:
                continue
        return max(gaps, default=0.0), max(waits, default=0.0)
