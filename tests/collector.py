"""An OpenTelemetry collector that keeps the spans it is sent, or refuses them, or lets its callers wait."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Collector(ThreadingHTTPServer):
    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.status, self.requests = 200, []  # as they came: path, and what is exported
        self.answer = b"{}"
        self.goes_on = threading.Event()  # cleared: callers wait
        self.goes_on.set()

    @property
    def spans(self):
        return [span for _, sent in list(self.requests) for span in sent["scopeSpans"][0]["spans"]]

    def of_request(self, request_id):
        trace_ids = {
            each["traceId"] for each in self.spans if attributes(each).get("spillway.request_id") == request_id
        }
        return [span for span in self.spans if span["traceId"] in trace_ids]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        assert self.headers["content-type"] == "application/json"
        (sent,) = json.loads(self.rfile.read(int(self.headers["content-length"])))["resourceSpans"]
        self.server.goes_on.wait(60)
        if self.server.status == 200:
            self.server.requests.append((self.path, sent))
        self.send_response(self.server.status)
        if self.server.status // 100 == 3:
            self.send_header("Location", "/login")
        self.end_headers()
        self.wfile.write(self.server.answer)

    def do_GET(self):  # what a redirect would be followed to
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


def attributes(span):
    """Those of a span or a resource, as OTLP's JSON has them: whole numbers are strings there."""
    pairs = ((each["key"], *each["value"].items()) for each in span.get("attributes", ()))
    return {key: int(value) if kind == "intValue" else value for key, (kind, value) in pairs}


@contextmanager
def collecting():
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.goes_on.set()
            server.shutdown()
            thread.join(60)
