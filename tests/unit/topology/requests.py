"""Pipelines at random, and a request's way through one: every message in any order, every choice, every loss.

The stages here know nothing but `Graph`: they send results along the edges that they chose, and losses where
`losses` says. `run` checks what exactly-one-outcome rests on: a join, and the gate, hears exactly one thing from each
sender that it expects, whatever it is that it hears first.
"""

from topology.reading.fields import read_fields
from topology.rules.structure import check_structure
from topology.spec import JoinSpec

GATE = None


class BrokenRuleError(Exception):
    """A join heard something twice, too much, or not enough."""


def random_pipeline(random):
    """A pipeline that passes every check, with as many choosers as it can have."""
    stages = []
    if random.random() < 0.5:
        _tangle(random, stages)
    else:
        ends = _series(random, stages)
        if random.random() < 0.6:
            _add(stages, ends)
    for stage in stages:
        if len(stage["after"]) > 1:
            mode, on_loss = random.choice(("all", "all", "any")), random.choice(("drop", "partial"))
            stage["join"] = {"mode": mode, "on_loss": on_loss}
    raw = {"name": "p", "slo": 1, "sinks": random.choice(("any", "all")), "stages": stages}
    for stage in random.sample(stages, len(stages)):
        if random.random() < 0.7:
            stage["choose"] = "m:f"
            if accepted(raw) is None:
                del stage["choose"]
    spec = accepted(raw)
    assert spec is not None
    return spec


def _add(stages, after):
    name = f"s{len(stages)}"
    stages.append({"name": name, "model": "m:M", "after": sorted(after)})
    return name


def _tangle(random, stages):
    for _ in range(random.randint(1, 8)):
        known = [stage["name"] for stage in stages]
        count = min(len(known), random.choice((0, 1, 1, 1, 1, 2, 2, 3)))
        if known and count == 0 and random.random() < 0.7:
            count = 1
        _add(stages, random.sample(known, count))


def _series(random, stages, after=(), depth=0):
    """Branches that fork and meet again, some within others; returns their ends."""
    ends = list(after)
    for _ in range(random.randint(1 if depth else 2, 3 - depth)):
        first = _add(stages, ends)
        ends = [first]
        if depth < 2 and random.random() < (0.5 if depth else 0.8):
            branches = range(random.randint(2, 3 - depth))
            ends = [end for _ in branches for end in _series(random, stages, (first,), depth + 1)]
    return ends


def accepted(raw):
    problems = []
    fields = read_fields(raw, problems)
    check_structure(fields, problems)
    return None if problems else fields.spec()


class Meeting:
    def __init__(self, mode, on_loss):
        self.mode, self.on_loss = mode, on_loss
        self.expected = None
        self.heard = {}  # sender -> whether it was a result
        self.path = {}
        self.verdict = None

    def hear(self, place, senders, expected, path, *, result):
        """Returns whether this decided."""
        if self.expected is None:
            self.expected = expected
        if expected != self.expected:
            raise BrokenRuleError(f"{place} expects {expected} by one message and {self.expected} by another")
        for sender in senders:
            if sender in self.heard:
                raise BrokenRuleError(f"{place} hears twice from {sender}")
            if sender not in expected:
                raise BrokenRuleError(f"{place} hears from {sender}, and expects {expected}")
            self.heard[sender] = result
        self.path |= path
        if self.verdict is None:
            self.verdict = self._decide()
            return self.verdict is not None
        return False

    def _decide(self):
        complete = len(self.heard) == len(self.expected or ())
        result, loss = any(self.heard.values()), not all(self.heard.values())
        if self.mode == "any":
            return "go" if result else "lost" if complete else None
        if loss and self.on_loss == "drop":
            return "lost"
        if not complete:
            return None
        return "go" if result else "lost"


def run(spec, graph, random, losing):
    """Send one request through; returns its outcome. Raises BrokenRuleError."""
    meetings = {GATE: Meeting(spec.sinks or "any", "drop")}
    for stage in spec.stages:
        if graph.is_join(stage.name):
            join = stage.join or JoinSpec()
            meetings[stage.name] = Meeting(join.mode, join.on_loss)
    ran = set()
    # (to whom, from whom or for whom, whether it is a result, the choices)
    under_way = []

    def lose(name, path):
        under_way.extend((target, lost, False, path) for target, lost in graph.losses(name, path))

    def execute(name, path):
        if name in ran:
            raise BrokenRuleError(f"{name} runs twice")
        ran.add(name)
        if random.random() < losing:
            lose(name, path)
            return
        targets = graph.successors[name]
        if spec.stage(name).choose is not None:
            targets = tuple(target for target in targets if random.random() < 0.6)
            path = {**path, name: targets}
        under_way.extend((target, (name,), True, path) for target in targets or (GATE,))

    for root in graph.roots:
        execute(root, {})
    while under_way:
        target, senders, result, path = under_way.pop(random.randrange(len(under_way)))
        meeting = meetings.get(target)
        if meeting is None:
            if not result:
                raise BrokenRuleError(f"{target} is no join and hears of a loss")
            execute(target, path)
            continue
        expected = graph.terminals(path) if target is GATE else graph.expected(target, path)
        decided = meeting.hear(target or "the gate", senders, expected, path, result=result)
        if decided and target is not GATE:
            (execute if meeting.verdict == "go" else lose)(target, meeting.path)
    for name, meeting in meetings.items():
        if meeting.heard and set(meeting.heard) != set(meeting.expected):
            raise BrokenRuleError(f"{name or 'the gate'} heard from {sorted(meeting.heard)} of {meeting.expected}")
    if meetings[GATE].verdict is None:
        raise BrokenRuleError("the gate never decides")
    return meetings[GATE].verdict
