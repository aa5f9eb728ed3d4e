"""The controller, driven by fronts that do what it orders: loads, deaths, moves, upgrades cut short, two of it."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.infaas.family import HOSTS, of
from spillway.topology.variants.controller import Controller, Order, Report
from spillway.topology.variants.hosts import Fleet
from spillway.topology.variants.scaling import PUBLISHED, Weights
from spillway.topology.variants.states import Told

RESNET = of("ResNet50")
BY_NAME = {each.name: each for each in RESNET}
CPU, NEURON, TRT1, TRT8 = RESNET[:4]
GROUP = ("classification", "ResNet50")


class Standing:
    """What stands, to whoever carries it out: an order of a lower epoch than any that was seen is void."""

    def __init__(self) -> None:
        self.epoch = 0
        self.orders: dict[str, Order] = {}

    def take(self, order: Order) -> bool:
        """Whether an order, which comes behind all others that were taken, counts."""
        if order.epoch < self.epoch:
            return False
        self.epoch = order.epoch
        self.orders[order.variant] = order
        return True


class Stage:
    """Fronts that start and end workers as the table says, and share a load out by what serves."""

    def __init__(self, variants=RESNET, hosts=None, **how):
        self.variants, self.how = variants, {"weights": PUBLISHED} | how
        self.now, self.slo, self.load = 0.0, 0.3, 0.0
        self.table = Standing()
        self.workers = {}  # by variant, when each is ready
        self.dead, self.broken, self.slow = {}, set(), {}
        self.lacking = ()  # variants that queries name
        self.hosts = hosts or {"m5": 1, "inf1": 1, "p3": 1}
        self.log = []
        self.controller = self.another(1)

    def another(self, epoch):
        fleet = Fleet(HOSTS, dict(self.hosts))
        found = Controller(self.variants, fleet, epoch, **self.how)
        for order in self.table.orders.values():
            found.stands(self.now, order.variant, order.workers, order.epoch)
        return found

    def write(self, order):
        before = self.count(order.variant)
        assert self.table.take(order)
        if before != order.workers:
            self.log.append((self.now, order.variant, order.workers))
        self.controller.stands(self.now, order.variant, order.workers, order.epoch)

    def count(self, name):
        return self.table.orders[name].workers if name in self.table.orders else 0

    @property
    def changes(self):
        """How often a variant's workers were changed."""
        return len([each for each in self.log if each[1] in BY_NAME])

    def kill(self, name):
        self.workers[name].pop()
        self.dead[name] = self.dead.get(name, 0) + 1

    @property
    def ready(self):
        return {name: n for name, at in self.workers.items() if (n := sum(each <= self.now for each in at))}

    @property
    def rate(self):
        return sum(BY_NAME[name].rate * n for name, n in self.ready.items())

    def go(self, seconds, load=None):
        self.load = self.load if load is None else load
        until = self.now + seconds
        while self.now < until:
            self.step()

    def step(self):
        self.now += 1.0
        for name in self.table.orders:
            at = self.workers.setdefault(name, [])
            while len(at) < self.count(name):
                at.append(self.now + BY_NAME[name].load)
            at.sort()
            del at[self.count(name) :]
            if name in self.broken and any(each <= self.now for each in at):
                self.dead[name] = self.dead.get(name, 0) + len(at)
                at[:] = []
        told = {}
        for name, at in self.workers.items():
            n = self.ready.get(name, 0)
            share = self.load * BY_NAME[name].rate * n / self.rate if n else 0.0
            p50 = BY_NAME[name].duration(1) * self.slow.get(name, 1.0)
            told[name] = Told(n, len(at), self.dead.pop(name, 0), share, p50, 1, 0.0)
        unmet = {self.variants[0].name: self.load} if not self.ready and self.load else {}
        self.controller.report(self.now, Report(told, unmet, {GROUP: self.slo}, self.lacking))
        for order in self.controller.orders(self.now):
            self.write(order)
        self.log += [(self.now, order.kind, order.start) for order in self.controller.host_orders(self.now)]


def test_the_first_query_loads_what_is_cheapest_and_the_rise_of_the_load_upgrades_it():
    stage = Stage()
    stage.go(10, 4)
    [(name, count)] = stage.ready.items()
    assert (BY_NAME[name].hardware, count) == ("cpu", 1)
    stage.go(10, 80)
    assert {BY_NAME[each].hardware for each in stage.ready} == {"inferentia"}
    settled = stage.changes
    stage.go(30)
    assert stage.changes == settled
    stage.go(20, 4)
    assert {BY_NAME[each].hardware for each in stage.ready} == {"cpu"}


def test_what_a_query_names_is_loaded_beside_what_serves_and_stays_while_it_is_asked():
    stage = Stage(settle=10)
    stage.go(20, 4)
    [serves] = stage.ready
    stage.lacking = (NEURON.name,)
    stage.go(10)
    assert stage.ready == {serves: 1, NEURON.name: 1}
    stage.lacking = ()
    stage.go(60)  # it gets its share of the load
    assert stage.ready[NEURON.name] == 1
    idle = Stage(settle=10)
    idle.go(20, 4)
    idle.lacking = (NEURON.name,)
    idle.go(1, 0)
    idle.lacking = ()
    idle.go(60)
    assert sum(idle.ready.values()) == 1


def test_workers_stay_for_as_long_as_it_would_take_to_have_them_back_after_a_rise():
    def left(settle, seconds):
        stage = Stage((NEURON,), settle=settle)
        stage.go(80, load=380)
        stage.go(seconds, load=20)
        return stage.count(NEURON.name)

    back = HOSTS["inf1"].start + NEURON.load
    assert left(10, back - 4) == 4
    assert left(10, back + 20) < 4
    assert left(0, back - 4) < 4  # as published


def test_a_rise_is_ordered_for_as_far_as_it_will_go_while_a_worker_loads():
    def short(settle, rise):
        """Seconds in which the workers that serve could not do the load."""
        stage = Stage((NEURON,), {"m5": 1, "inf1": 3, "p3": 1}, settle=settle)
        stage.go(60, load=20)
        seconds = 0
        for load in rise:
            stage.go(1, load)
            seconds += stage.rate < load
        return seconds

    lines = [range(20, 390, step) for step in (2, 4, 8)]
    assert [short(0, line) for line in lines] == [1, 3, 8]  # as published, without a memory of loads
    assert [short(10, line) for line in lines] == [0, 1, 4]
    assert short(10, [200] * 60) == short(0, [200] * 60)  # a step is no rise that goes on


def test_noise_is_no_rise_that_goes_on():
    stage, random = Stage((NEURON,), settle=10), Random(1)
    stage.go(60, load=100)
    before = stage.changes
    for _ in range(200):
        stage.go(1, load=random.uniform(90, 110))
    assert stage.changes == before


def test_a_latency_that_nothing_keeps_is_met_by_the_fastest():
    stage = Stage()
    stage.slo = 0.001
    stage.go(10, 4)
    assert stage.ready == {TRT1.name: 1}


def test_nobody_asking_keeps_one_worker_or_none_if_it_is_told_so():
    kept, gone = Stage(), Stage(idle=30)
    for stage in (kept, gone):
        stage.go(10, 4)
        stage.go(60, 0)
    assert sum(kept.ready.values()) == 1
    assert gone.ready == {}
    gone.go(10, 4)
    assert sum(gone.ready.values()) == 1


def test_a_variant_that_dies_while_loading_is_left_for_another_and_tried_again_later():
    stage = Stage()
    stage.broken = {each.name for each in RESNET if each.hardware == "cpu"}
    stage.go(30, 4)
    assert {BY_NAME[name].hardware for name in stage.ready} == {"inferentia"}
    failed = {name for name in stage.broken if stage.controller.lives[name].failures}
    assert failed
    assert all(stage.count(name) == 0 for name in failed)
    stage.broken = set()
    stage.go(120)
    assert {BY_NAME[name].hardware for name in stage.ready} == {"cpu"}


def test_workers_that_never_come_are_late_and_others_are_ordered():
    stage = Stage([CPU, NEURON])
    stage.go(5, 4)
    assert stage.ready == {CPU.name: 1}
    slow = CPU.model_copy(update={"load": 1e6})
    BY_NAME[CPU.name] = slow
    try:
        stage.kill(CPU.name)
        stage.go(60)
    finally:
        BY_NAME[CPU.name] = CPU
    assert stage.ready == {NEURON.name: 1}


def test_of_two_controllers_the_higher_epoch_stands_and_the_other_ends_its_orders():
    stage = Stage()
    stage.go(10, 4)
    old, stage.controller = stage.controller, stage.another(2)
    stage.go(10, 80)
    table = dict(stage.table.orders)
    assert {order.epoch for order in table.values()} == {2}
    old.report(stage.now, Report({}, {CPU.name: 500.0}, {GROUP: 0.3}))
    orders = old.orders(stage.now)
    assert {order.epoch for order in orders} == {1}
    assert not any(stage.table.take(order) for order in orders)
    for order in table.values():
        old.stands(stage.now, order.variant, order.workers, order.epoch)
    assert old.superseded
    assert old.orders(1e6) == []
    assert old.host_orders(1e6) == []
    assert stage.table.orders == table


def test_an_interfered_variant_moves_to_a_host_where_it_is_alone():
    stage = Stage([CPU, TRT8], {"p3": 2})
    stage.go(20, 100)
    fleet = stage.controller.fleet
    other = of("VGG16")[3]
    [first] = [host for host in fleet.hosts if TRT8.name in fleet.on(host)]
    stage.slo = 0.1
    fleet._hosts[first].on[other] += 1  # a neighbour of another stage
    stage.slow = {TRT8.name: 1.5}
    stage.go(3)
    assert stage.count(TRT8.name) == 2
    assert sum(TRT8.name in fleet.on(host) for host in fleet.hosts) == 2
    stage.slow = {}
    stage.go(20)
    assert stage.count(TRT8.name) == 1
    assert TRT8.name not in fleet.on(first)


def test_a_stale_profile_is_told_and_more_workers_are_ordered_for_it():
    stage = Stage([NEURON])
    stage.go(10, 80)
    stage.slow = {NEURON.name: 1.5}
    stage.go(40)
    assert stage.controller.stale == {NEURON.name: pytest.approx(1.5)}
    assert stage.ready == {NEURON.name: 2}
    assert stage.controller.statuses(stage.now)[NEURON.name].slower > 1


def test_a_host_is_started_where_there_is_no_room_and_let_go_when_it_is_empty():
    stage = Stage([CPU], {"m5": 1})
    stage.go(60, 18)
    assert stage.ready == {CPU.name: 4}
    assert [(kind, start) for _, kind, start in stage.log if kind == "m5"] == [("m5", True), ("m5", True)]
    stage.go(200, 4)
    assert len(stage.controller.fleet.hosts) == 1


def test_without_vertical_scaling_the_variant_that_runs_is_replicated():
    stage = Stage([CPU, NEURON], {"m5": 10}, vertical=False)
    stage.table.take(Order(CPU.name, "cpu", 1, "the file", 1))
    stage.controller = stage.another(2)
    stage.go(20, 60)
    assert stage.ready == {CPU.name: 13}


def test_a_worker_counts_with_what_it_does_in_time_and_is_busy_with_few():
    stage = Stage([CPU, NEURON, TRT8], weights=Weights())
    stage.go(20, 4)
    assert stage.ready == {NEURON.name: 1}  # one on a CPU would be busy four fifths of the time, and 300 ms leave 100
    stage.slo = 2.0
    stage.go(20)
    assert stage.ready == {CPU.name: 1}


def test_a_latency_that_nothing_keeps_orders_no_worker_more_than_the_load_takes():
    stage = Stage([CPU], weights=Weights())
    stage.slo = 0.001
    stage.go(60, 8)
    assert stage.ready == {CPU.name: 2}


loads = st.sampled_from([0.0, 2.0, 4.0, 30.0, 80.0, 500.0])
steps = st.tuples(st.integers(1, 8), loads, st.sampled_from(["nothing", "kill", "break", "mend", "controller", "slow"]))


@given(st.lists(steps, max_size=12), st.sampled_from([0.02, 0.3]), st.data())
def test_whatever_happens_the_stage_serves_the_load_in_the_end_and_stays_as_it_is(steps, slo, data):
    stage = Stage(RESNET[:8])
    stage.slo = slo
    epoch = 1
    for seconds, load, event in steps:
        alive = sorted(name for name, at in stage.workers.items() if at)
        if event == "kill" and alive:
            stage.kill(data.draw(st.sampled_from(alive)))
        elif event == "break":
            stage.broken = {data.draw(st.sampled_from(sorted(BY_NAME)))}
        elif event == "mend":
            stage.broken, stage.slow = set(), {}
        elif event == "slow":
            stage.slow = {data.draw(st.sampled_from(sorted(BY_NAME))): 2.0}
        elif event == "controller":
            epoch += 1
            stage.controller = stage.another(epoch)
        stage.go(seconds, load)
    stage.broken, stage.slow = set(), {}
    stage.go(150, 60.0)
    keeping = sum(BY_NAME[name].rate * n for name, n in stage.ready.items() if BY_NAME[name].latency <= slo)
    assert keeping >= 60 * 1.05
    settled = stage.changes
    stage.go(60)
    assert stage.changes == settled


def test_what_is_found_standing_is_idle_from_then_on():
    stage = Stage(idle=30.0)
    stage.controller.stands(0.0, CPU.name, 1, 0)
    assert [order.workers for order in stage.controller.orders(0.0)] == [1]
    stage.controller.stands(0.0, CPU.name, 1, 1)
    assert stage.controller.orders(29.0) == []
    assert [order.workers for order in stage.controller.orders(30.0)] == [0]
