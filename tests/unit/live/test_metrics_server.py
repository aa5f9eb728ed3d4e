"""What a process answers over HTTP: its metrics, whether it hangs, whether it serves."""

from __future__ import annotations

import asyncio
import threading
import urllib.error
import urllib.request

import pytest

from agents.live.metrics import StageMetrics
from agents.live.registry import LOOPBACK, Address, MetricsServer, serve_metrics, turns
from lineage.errors import UsageError


def get(address, path):
    try:
        with urllib.request.urlopen(f"http://{address.local}:{address.port}{path}", timeout=30) as page:
            return page.status, page.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_metrics_and_questions_have_their_pages():
    wrong = {"healthy": "", "ready": "it starts"}
    server = MetricsServer(
        StageMetrics("p", "s", 0), Address(), healthy=lambda: wrong["healthy"], ready=lambda: wrong["ready"]
    )
    try:
        assert "spillway_received_total" in get(server.address, "/metrics")[1]
        assert get(server.address, "/healthz") == (200, "ok\n")
        assert get(server.address, "/readyz") == (503, "it starts\n")
        wrong.update(healthy="it hangs", ready="")
        assert get(server.address, "/healthz") == (503, "it hangs\n")
        assert get(server.address, "/readyz") == (200, "ok\n")
    finally:
        server.close()


def test_a_port_that_is_taken_is_named():
    first = MetricsServer(StageMetrics("p", "s", 0), Address())
    try:
        with pytest.raises(UsageError, match=rf"cannot listen on 127\.0\.0\.1:{first.address.port} .* --metrics-port"):
            MetricsServer(StageMetrics("p", "s", 1), first.address)
    finally:
        first.close()


def test_all_addresses_are_reached_by_loopback():
    assert Address("0.0.0.0", 1).local == LOOPBACK
    assert Address("10.0.0.1", 1).local == "10.0.0.1"


def test_a_process_is_ready_once_it_serves_and_while_no_partition_is_stopped(tmp_path):
    metrics = StageMetrics("p", "s", 0)
    registration = serve_metrics(tmp_path, metrics, Address(), str)
    address = Address(port=registration.port)
    try:
        assert get(address, "/readyz") == (503, "it has not begun to serve\n")
        registration.mark_ready()
        assert get(address, "/readyz")[0] == 200
        metrics.stopped[3] = 17
        code, said = get(address, "/readyz")
        assert (code, "partitions 3 are stopped" in said) == (503, True)
    finally:
        registration.close()


def test_a_loop_that_turns_is_told_from_one_that_does_not(monkeypatch):
    monkeypatch.setattr("agents.live.registry.LOOP_SECONDS", 60.0)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        assert turns(loop)() == ""
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
    monkeypatch.setattr("agents.live.registry.LOOP_SECONDS", 0.0)
    assert turns(loop)() == "the event loop has not turned for 0 s"
    loop.close()
