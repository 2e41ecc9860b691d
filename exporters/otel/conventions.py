"""Metrics under the names of OpenTelemetry.

Hardware has those of its semantic conventions, `docs/hardware/` of open-telemetry/semantic-conventions 1.44.0
(status Development). All else has ours with dots, so that a collector which writes Prometheus's names makes
those of a scrape: `vramscope.rank.allocated` in `By` becomes `vramscope_rank_allocated_bytes`.
"""

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from ...analyzers.findings.driver_tools import find_maker
from ...analyzers.health.health import KINDS as HEALTH_KINDS
from ...engine.model import REAL_KINDS, DeviceSample
from ..metrics.collection import UP_NAME, collect
from ..metrics.families import Metric, Picture

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
