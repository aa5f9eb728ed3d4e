import asyncio
import threading

from agents.models.execution import Instances


async def run(count, jobs, work):
    done, broken = asyncio.Queue(), []
    instances = Instances(
        count,
        asyncio.get_running_loop(),
        work=work,
        done=lambda job, result: done.put_nowait((job, result)),
        broken=broken.append,
    )
    for instance, job in jobs:
        instances.submit(instance, job)
    results = [await asyncio.wait_for(done.get(), 5) for _ in jobs] if work is not broken_work else []
    if work is broken_work:
        while not broken:
            await asyncio.wait_for(asyncio.to_thread(lambda: None), 5)
    assert instances.close(5.0)
    return results, broken


def broken_work(_instance, _job):
    raise RuntimeError("ours")


def test_jobs_of_one_instance_run_in_order_off_the_loops_thread():
    threads = set()

    def work(instance, job):
        threads.add(threading.current_thread().name)
        return job * 10

    results, _ = asyncio.run(run(1, [(0, 1), (0, 2), (0, 3)], work))
    assert results == [(1, 10), (2, 20), (3, 30)]
    assert threads == {"instance-0"}


def test_instances_run_side_by_side():
    barrier = threading.Barrier(2, timeout=5)

    def work(instance, job):
        barrier.wait()
        return instance

    results, _ = asyncio.run(run(2, [(0, "a"), (1, "b")], work))
    assert sorted(results) == [("a", 0), ("b", 1)]


def test_an_error_of_the_drivers_own_is_reported():
    _, broken = asyncio.run(run(1, [(0, 1)], broken_work))
    assert str(broken[0]) == "ours"
