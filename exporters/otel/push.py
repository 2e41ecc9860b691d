"""Pushes what an agent knows by OTLP over HTTP, with the exporter of OpenTelemetry's own SDK.

The SDK is an extra of ours: `pip install 'vramscope[otel]'`. Headers, certificates, timeout and compression
are those of its variables `OTEL_EXPORTER_OTLP_*`: so no secret is on a command line.
"""

import ipaddress
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import msgspec

from ...analyzers.findings.driver_tools import find_maker
from ...analyzers.health.health import KINDS as HEALTH_KINDS
from ...engine.errors import PackageMissingError, UsageError
from ...engine.model import REAL_KINDS, DeviceSample
from ..metrics.collection import UP_NAME, collect
from ..metrics.families import Metric, Picture

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import Metric as SdkMetric
    from opentelemetry.sdk.metrics.export import MetricsData


# Metrics under the names of OpenTelemetry.
#
# Hardware has those of its semantic conventions, `docs/hardware/` of open-telemetry/semantic-conventions
# 1.44.0 (status Development). All else has ours with dots, so that a collector which writes Prometheus's
# names makes those of a scrape: `vramscope.rank.allocated` in `By` is `vramscope_rank_allocated_bytes` there.

Instrument = Literal["gauge", "counter", "up-down counter"]
Attributes = Mapping[str, str]


class Measurement(NamedTuple):
    """One metric of OpenTelemetry with its points."""

    name: str
    instrument: Instrument
    unit: str
    """In UCUM."""
    description: str
    points: tuple[tuple[Attributes, float], ...]


class _Component(NamedTuple):
    """One device that is hardware."""

    attributes: Attributes
    """Those that the conventions recommend for every metric of a component."""
    status: Literal["ok", "degraded", "failed"] | None
    """None where nobody knows, as the agent is silent."""


class _HardwareName(NamedTuple):
    name: str
    instrument: Instrument
    unit: str
    attributes: Attributes = {}


_USED = "vramscope_device_used_bytes"
_CAPACITY = "vramscope_device_capacity_bytes"
_GPU = {"hw.type": "gpu"}
# Our families that mean exactly what a convention names. `hw.gpu.io` counts bytes, and drivers report rates.
HARDWARE_NAMES: Mapping[str, _HardwareName] = {
    _USED: _HardwareName("hw.gpu.memory.usage", "up-down counter", "By"),
    _CAPACITY: _HardwareName("hw.gpu.memory.limit", "up-down counter", "By"),
    "vramscope_device_utilization_ratio": _HardwareName(
        "hw.gpu.utilization", "gauge", "1", {"hw.gpu.task": "general"}
    ),
    "vramscope_device_power_watts": _HardwareName("hw.power", "gauge", "W", _GPU),
    "vramscope_device_temperature_celsius": _HardwareName("hw.temperature", "gauge", "Cel"),
    "vramscope_device_ecc_corrected_errors": _HardwareName(
        "hw.errors", "counter", "{error}", {**_GPU, "error.type": "corrected"}
    ),
    "vramscope_device_ecc_uncorrected_errors": _HardwareName(
        "hw.errors", "counter", "{error}", {**_GPU, "error.type": "uncorrected"}
    ),
}
_STATUSES = ("ok", "degraded", "failed")
_UNITS = {
    "bytes": "By",
    "bytes_per_second": "By/s",
    "celsius": "Cel",
    "hertz": "Hz",
    "ratio": "1",
    "seconds": "s",
    "watts": "W",
}


def convert(picture: Picture) -> list[Measurement]:
    """Return all metrics of a node; its name is for the resource, and no attribute."""
    components = {
        it.uuid: _Component(_describe(it), _find_status(picture, it))
        for it in picture.devices
        if it.kind in REAL_KINDS  # a modelled card is no hardware, and keeps our names
    }
    found: dict[str, Measurement] = {}
    for metric in collect(picture):
        for made in _convert_metric(metric, components):
            before = found.get(made.name)
            found[made.name] = made if before is None else made._replace(points=before.points + made.points)
    shares = _find_shares(found)
    return [*found.values(), *([] if shares is None else [shares])]


def _convert_metric(metric: Metric, components: Mapping[str, _Component]) -> Iterator[Measurement]:
    name = HARDWARE_NAMES.get(metric.name)
    is_status = metric.name == UP_NAME
    ours: list[tuple[Attributes, float]] = []
    theirs: list[tuple[Attributes, float]] = []
    for values, value in metric.rows:
        labels = dict(zip(metric.labels, values, strict=True))
        component = components.get(labels.get("uuid", ""))
        if component is None or (name is None and not is_status):
            # Nothing stands for what is unknown, and the node is an attribute of the resource.
            kept = {it: text for it, text in labels.items() if text and it not in ("node", "uuid")}
            ours.append((kept | ({"hw.id": labels["uuid"]} if labels.get("uuid") else {}), value))
        elif name is not None:
            theirs.append(({**component.attributes, **name.attributes}, value))
        elif component.status is not None:
            for state in _STATUSES:
                at_state = {**component.attributes, **_GPU, "hw.state": state}
                theirs.append((at_state, float(state == component.status)))
    if theirs and name is not None:
        yield Measurement(name.name, name.instrument, name.unit, metric.help, tuple(theirs))
    elif theirs:
        text = "Operational status: 1 at the state that holds."
        yield Measurement("hw.status", "up-down counter", "1", text, tuple(theirs))
    if ours:
        instrument: Instrument = "counter" if metric.kind == "counter" else "gauge"
        bare = metric.name.removesuffix(f"_{metric.unit}") if metric.unit else metric.name
        dotted = ".".join(bare.split("_", 2)) + (".info" if metric.kind == "info" else "")
        yield Measurement(dotted, instrument, _UNITS.get(metric.unit, ""), metric.help, tuple(ours))


def _find_shares(found: Mapping[str, Measurement]) -> Measurement | None:
    usage = found.get(HARDWARE_NAMES[_USED].name)
    limit = found.get(HARDWARE_NAMES[_CAPACITY].name)
    if usage is None or limit is None:
        return None
    limits = {it["hw.id"]: value for it, value in limit.points}
    shares = [(it, value / limits[it["hw.id"]]) for it, value in usage.points if limits.get(it["hw.id"])]
    text = "Fraction of GPU memory used."
    return Measurement("hw.gpu.memory.utilization", "gauge", "1", text, tuple(shares)) if shares else None


def _describe(device: DeviceSample) -> Attributes:
    known = {
        "hw.id": device.uuid,
        "hw.name": f"GPU {device.label}",
        "hw.model": device.name,
        "hw.vendor": find_maker(device),
        "hw.parent": device.parent_uuid,
        "hw.driver_version": None if device.hardware is None else device.hardware.driver_version,
        "vramscope.device.kind": device.kind,
    }
    return {name: text for name, text in known.items() if text}


def _find_status(picture: Picture, device: DeviceSample) -> Literal["ok", "degraded", "failed"] | None:
    if not picture.is_fresh:
        return None
    if device.state == "lost":
        return "failed"
    is_sick = any(it.kind in HEALTH_KINDS and it.device_uuid == device.uuid for it in picture.findings())
    return "degraded" if is_sick or not picture.is_up(device) else "ok"


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
        PackageMissingError: The SDK is not installed.
        UsageError: An address or interval is none, or the way is not protected.
    """
    if not _has_exporter():
        raise PackageMissingError(
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


def _make_metric(made: Measurement, started_ns: int, now_ns: int) -> "SdkMetric":
    from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge, NumberDataPoint, Sum
    from opentelemetry.sdk.metrics.export import Metric as SdkMetric

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
    return SdkMetric(made.name, made.description, made.unit, data)


class _LastReason(logging.Handler):
    """Keeps the last sentence of the SDK, which says why it could not send."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()
