"""An OpenTelemetry collector that keeps the spans it is sent, or refuses them, or lets its callers wait."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Collector(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port=0):
        super().__init__(("127.0.0.1", port), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.status = 200
        self.requests = []  # as they came: path, and the decoded body
        self.goes_on = threading.Event()  # cleared: callers wait
        self.goes_on.set()

    @property
    def spans(self):
        return [
            span
            for _, body in list(self.requests)
            for resource in body["resourceSpans"]
            for scope in resource["scopeSpans"]
            for span in scope["spans"]
        ]

    def of_request(self, request_id):
        """The spans of one query, each with its attributes as a dict."""
        roots = [span for span in self.spans if attributes(span).get("spillway.request_id") == request_id]
        trace_ids = {span["traceId"] for span in roots}
        return [{**span, "attributes": attributes(span)} for span in self.spans if span["traceId"] in trace_ids]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        assert self.headers["content-type"] == "application/json"
        self.server.goes_on.wait(60)
        if self.server.status == 200:
            self.server.requests.append((self.path, body))
        self.send_response(self.server.status)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


def attributes(span):
    """Those of a span, as OTLP's JSON has them: whole numbers are strings there."""
    read = {"stringValue": str, "intValue": int, "doubleValue": float, "boolValue": bool}
    found = {}
    for each in span.get("attributes", ()):
        ((kind, value),) = each["value"].items()
        found[each["key"]] = read[kind](value)
    return found


@contextmanager
def collecting(port=0):
    with Collector(port) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.goes_on.set()
            server.shutdown()
            thread.join(60)
