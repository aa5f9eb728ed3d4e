"""What runs on which host, when another is started, and when one is let go."""

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.infaas.family import HOSTS, family, of
from spillway.topology.variants.hosts import EMPTY, Fleet

CPU, NEURON, TRT1, TRT8 = of("ResNet50")[:4]
LARGE = of("VGG19")[0]  # 3.3 GB on 4 cores


def said(orders):
    return [(order.kind, order.start, order.why) for order in orders]


def test_a_worker_goes_to_the_fullest_host_that_has_room():
    fleet = Fleet(HOSTS, {"m5": 3})
    assert fleet.place(0.0, CPU, 1) == 1
    assert fleet.place(0.0, LARGE, 2) == 2
    assert [fleet.on(host) for host in fleet.hosts] == [{CPU.name: 1, LARGE.name: 1}, {LARGE.name: 1}, {}]
    assert fleet.place(0.0, CPU, 9) == 3  # 8 cores a host
    assert fleet.fits(0.0, CPU) == 0
    fleet.release(0.0, CPU, 3)
    assert fleet.fits(0.0, CPU) == 3


def test_workers_leave_the_emptiest_host_first_unless_another_is_named():
    fleet = Fleet(HOSTS, {"m5": 2})
    fleet.place(0.0, CPU, 3)
    fleet.release(0.0, CPU, 1)
    assert [fleet.on(host) for host in fleet.hosts] == [{CPU.name: 2}, {}]
    fleet.place(0.0, CPU, 1)
    fleet.release(0.0, CPU, 1, first=("m5-1",))
    assert [fleet.on(host) for host in fleet.hosts] == [{CPU.name: 1}, {CPU.name: 1}]


def test_a_host_is_added_where_a_kind_is_full_everywhere_and_serves_when_it_has_started():
    fleet = Fleet(HOSTS, {"m5": 1})
    fleet.place(0.0, CPU, 1)
    assert fleet.orders(0.0) == []
    fleet.place(0.0, CPU, 1)
    assert said(fleet.orders(1.0)) == [("m5", True, "every host's cpu is used by more than 80%")]
    assert fleet.orders(2.0) == []  # one of a kind starts at a time
    assert fleet.fits(25.9, CPU) == 0
    assert fleet.fits(26.0, CPU) == 2


def test_a_host_is_added_where_variants_are_interfered_or_overloaded_everywhere_or_fit_nowhere():
    def fleet():
        found = Fleet(HOSTS, {"m5": 1, "p3": 1})
        found.place(0.0, TRT8, 1)
        return found

    assert said(fleet().orders(0.0, interfered={TRT8.name})) == [
        ("p3", True, "variants on v100 suffer interference on every host")
    ]
    assert fleet().orders(0.0, overloaded={TRT8.name}) == []  # one of two hosts
    both = fleet()
    both.place(0.0, CPU, 1, avoid=("p3-2",))
    found = said(both.orders(0.0, overloaded={TRT8.name, CPU.name}))
    assert [(kind, why) for kind, _, why in found] in (
        [("p3", "2 of 2 hosts have overloaded variants")],
        [("m5", "2 of 2 hosts have overloaded variants")],
    )
    assert said(fleet().orders(0.0, wanted=[NEURON])) == [("inf1", True, f"{NEURON.name} does not fit on any host")]


def test_a_host_that_was_empty_for_a_minute_is_let_go_but_not_the_last():
    fleet = Fleet(HOSTS, {"m5": 2})
    fleet.place(0.0, CPU, 1)
    assert fleet.orders(EMPTY - 1) == []
    assert said(fleet.orders(EMPTY)) == [("m5", False, "no variant ran there for 60 s")]
    fleet.release(70.0, CPU, 1)
    assert fleet.orders(1000.0) == []
    assert list(fleet.hosts) == ["m5-1"]


def test_no_more_hosts_start_than_there_may_be():
    fleet = Fleet({"m5": HOSTS["m5"].model_copy(update={"most": 1})}, {"m5": 1})
    assert fleet.orders(0.0, wanted=[CPU]) == []


small = st.sampled_from([each for each in family() if each.architecture in {"ResNet50", "VGG19", "NasNetLarge"}])


@given(st.lists(st.tuples(small, st.integers(-3, 3)), max_size=25), st.integers(1, 3))
def test_nothing_is_ever_placed_where_it_does_not_fit(steps, count):
    fleet = Fleet(HOSTS, dict.fromkeys(HOSTS, count))
    meant = {}
    for variant, change in steps:
        if change > 0:
            meant[variant] = meant.get(variant, 0) + fleet.place(0.0, variant, change)
        else:
            fleet.release(0.0, variant, -change)
            meant[variant] = max(0, meant.get(variant, 0) + change)
    there = {}
    for host, kind in fleet.hosts.items():
        for hardware, room in HOSTS[kind].has.items():
            on = [(each, fleet.on(host).get(each.name, 0)) for each in family() if each.hardware == hardware]
            assert sum(each.units * n for each, n in on) <= room.units + 1e-6
            assert sum(each.memory * n for each, n in on) <= room.memory
        for name, n in fleet.on(host).items():
            there[name] = there.get(name, 0) + n
    assert there == {variant.name: n for variant, n in meant.items() if n}
