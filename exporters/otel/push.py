"""Pushes what an agent knows by OTLP over HTTP, with the exporter of OpenTelemetry's own SDK.

The SDK is an extra of ours: `pip install 'vramscope[otel]'`. Headers, certificates, timeout and compression
are those of its variables `OTEL_EXPORTER_OTLP_*`: so no secret is on a command line.
"""

import ipaddress
import logging
import os
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import msgspec

from ...engine.errors import UsageError
from ..metrics.families import Picture
from .conventions import Measurement, convert

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import Metric, MetricsData

DEFAULT_URL = "http://localhost:4318"
_PATH = "/v1/metrics"
_URL_VARIABLES = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_INTERVAL_VARIABLE = "OTEL_METRIC_EXPORT_INTERVAL"
DEFAULT_INTERVAL_S = 60.0
"""As the specification of OpenTelemetry's SDK says."""
LEAST_INTERVAL_S = 0.1
_LONGEST_REASON = 300


class OtlpOptions(msgspec.Struct, frozen=True):
    """Where metrics are pushed to, and how often."""

    url: str
    interval_s: float

    @property
    def words(self) -> str:
        return f"pushed to {self.url} every {self.interval_s:g} s"


def read_otlp_options(text: str, *, is_insecure: bool) -> OtlpOptions:
    """Return what `--otlp` and the variables of OpenTelemetry mean; nothing is sent yet.

    Args:
        text: Address of a collector; empty for that of the variables, or of this node.

    Raises:
        UsageError: The SDK is not installed, an address or interval is none, or the way is not protected.
    """
    if not _has_exporter():
        raise UsageError(
            "--otlp: metrics are sent by opentelemetry-exporter-otlp-proto-http, which is not installed: "
            "pip install 'vramscope[otel]'"
        )
    named = next((it for it in _URL_VARIABLES if os.environ.get(it)), "") if not text else ""
    url = text or os.environ.get(named, DEFAULT_URL)
    where = f"{named or '--otlp'} {url}" if "@" not in url else named or "--otlp"
    try:
        parts = urlsplit(url)
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        parts = urlsplit("")
        has_port = False
    if parts.scheme not in ("http", "https") or not parts.hostname or not has_port:
        raise UsageError(f"{where}: expected the address of a collector, for example {DEFAULT_URL}")
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            f"{where}: other users can read a password in an address: put it into the variable "
            "OTEL_EXPORTER_OTLP_HEADERS, for example `authorization=Basic%20…`"
        )
    if parts.scheme == "http" and not (_is_here(parts.hostname) or is_insecure):
        raise UsageError(
            f"{where}: everybody on the way could read the metrics: give an https address, or add --insecure"
        )
    # The variable of all signals names a base address, to which each signal adds its path.
    path = parts.path.rstrip("/")
    if named != _URL_VARIABLES[0] and not path.endswith(_PATH):
        path += _PATH
    return OtlpOptions(urlunsplit(parts._replace(path=path)), _read_interval())


def _has_exporter() -> bool:
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:  # a package above it is missing
        return False


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read_interval() -> float:
    text = os.environ.get(_INTERVAL_VARIABLE, "")
    try:
        interval_s = float(text) / 1000.0 if text else DEFAULT_INTERVAL_S
    except ValueError:
        interval_s = 0.0
    if not LEAST_INTERVAL_S <= interval_s <= 86_400:
        raise UsageError(f"{_INTERVAL_VARIABLE}={text}: expected milliseconds, from 100 to 86400000")
    return interval_s


class Pusher:
    """Pushes the picture of a node at an interval, on a thread; one that fails is tried again at the next.

    Args:
        complain: Called with a sentence when pushing begins to fail, and when it works again.
    """

    def __init__(
        self,
        options: OtlpOptions,
        look: Callable[[], Picture],
        *,
        version: str,
        complain: Callable[[str], None],
    ) -> None:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        self._options = options
        self._look = look
        self._version = version
        self._complain = complain
        self._reasons = _LastReason()
        # Its own words would go to stderr at each try.
        logger = logging.getLogger("opentelemetry")
        logger.handlers = [self._reasons]
        logger.propagate = False
        self._exporter = OTLPMetricExporter(options.url)
        self._started_ns = time.time_ns()
        self._is_failing = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._push_on, name="otlp", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End pushing; a request that is under way is left behind."""
        self._ended.set()
        self._exporter.shutdown()
        self._thread.join(timeout=1.0)

    def _push_on(self) -> None:
        while not self._ended.wait(self._options.interval_s):
            self.push()

    def push(self) -> bool:
        """Push once; return whether the collector accepted it."""
        from opentelemetry.sdk.metrics.export import MetricExportResult

        self._reasons.text = ""
        try:
            is_accepted = self._exporter.export(self._make_data(self._look())) is MetricExportResult.SUCCESS
        except Exception as error:  # noqa: BLE001 - one push that fails ends no other
            is_accepted = False
            self._reasons.text = str(error)
        if is_accepted == self._is_failing and not self._ended.is_set():
            self._is_failing = not is_accepted
            reason = " ".join(self._reasons.text.split())[:_LONGEST_REASON] or "no reason was given"
            self._complain(
                f"metrics reach {self._options.url} again"
                if is_accepted
                else f"metrics do not reach {self._options.url}: {reason}; trying again every "
                f"{self._options.interval_s:g} s"
            )
        return is_accepted

    def _make_data(self, picture: Picture) -> "MetricsData":
        from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        now_ns = time.time_ns()
        metrics = [_make_metric(it, self._started_ns, now_ns) for it in convert(picture)]
        hub = picture.snapshot.hub
        resource = Resource.create(
            {
                "service.name": "vramscope",
                "service.version": self._version if hub is None else hub.version,
                "host.name": picture.node,
            }
        )
        scope = ScopeMetrics(InstrumentationScope("vramscope", self._version), metrics, schema_url="")
        return MetricsData([ResourceMetrics(resource, [scope], schema_url="")])


def _make_metric(made: Measurement, started_ns: int, now_ns: int) -> "Metric":
    from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge, Metric, NumberDataPoint, Sum

    points = [
        # The convention of the SDK for what it only observes: from when it began to.
        NumberDataPoint(dict(attributes), 0 if made.instrument == "gauge" else started_ns, now_ns, value)
        for attributes, value in made.points
    ]
    data: Gauge | Sum
    if made.instrument == "gauge":
        data = Gauge(points)
    else:
        data = Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=made.instrument == "counter")
    return Metric(made.name, made.description, made.unit, data)


class _LastReason(logging.Handler):
    """Keeps the last sentence of the SDK, which says why it could not send."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()
