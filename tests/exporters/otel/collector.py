"""A collector: an OTLP/HTTP receiver on loopback that decodes requests with OpenTelemetry's own protobuf."""

import gzip
import threading
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)


class Point(NamedTuple):
    """One data point of one metric."""

    name: str
    shape: str
    """`gauge`, `sum`, or `monotonic sum`; sums are cumulative."""
    unit: str
    attributes: dict[str, str]
    value: float
    start_ns: int
    time_ns: int


class Push(NamedTuple):
    """One request."""

    path: str
    headers: dict[str, str]
    resource: dict[str, str]
    points: list[Point]

    def of(self, name: str, **attributes: str) -> list[Point]:
        """Return the points of a metric; in names of attributes `__` stands for a dot."""
        wanted = {key.replace("__", "."): text for key, text in attributes.items()}
        return [it for it in self.points if it.name == name and wanted.items() <= it.attributes.items()]

    @property
    def names(self) -> set[str]:
        return {it.name for it in self.points}


class Collector:
    """Takes what is pushed; `answers` are the codes it gives, the last one for ever."""

    def __init__(self, *answers: int) -> None:
        self.pushes: list[Push] = []
        self.answers = deque(answers or (200,))
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                assert self.headers["Content-Type"] == "application/x-protobuf"
                code = collector.answers.popleft() if len(collector.answers) > 1 else collector.answers[0]
                collector.pushes.append(_decode(self.path, dict(self.headers), body))
                answer = ExportMetricsServiceResponse().SerializeToString()
                self.send_response(code)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "Collector":
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _decode(path: str, headers: dict[str, str], body: bytes) -> Push:
    request = ExportMetricsServiceRequest.FromString(body)
    (of_node,) = request.resource_metrics
    (scope,) = of_node.scope_metrics
    resource = {it.key: it.value.string_value for it in of_node.resource.attributes}
    points = []
    for metric in scope.metrics:
        shape = metric.WhichOneof("data")
        data = getattr(metric, shape)
        if shape == "sum":
            assert data.aggregation_temporality == 2, "cumulative"
            shape = "monotonic sum" if data.is_monotonic else "sum"
        points += [
            Point(
                metric.name,
                shape,
                metric.unit,
                {attribute.key: attribute.value.string_value for attribute in it.attributes},
                getattr(it, it.WhichOneof("value")),
                it.start_time_unix_nano,
                it.time_unix_nano,
            )
            for it in data.data_points
        ]
    return Push(path, headers, resource, points)
