"""The hardware of a device on its page: clocks, limits, throughput, errors and versions."""

from collections.abc import Iterator, Sequence

from ...analyzers.findings.driver_tools import NVIDIA, find_tools
from ...engine.model import DeviceActivity, DeviceHardware, DeviceSample
from ...engine.units import format_bytes
from ..draw.bars import wrap_pieces
from ..draw.spans import Line, Role, Span
from ..widgets.device_fields import FAULTS

# A name with its value, and None as the value where the driver does not report it.
_Fact = tuple[str, str | None, Role]
# Cells of the subject at the beginning of a line.
_SUBJECT_CELLS = 13
# Width from which the longest fact fits next to it.
_NEXT_TO_FROM_CELLS = 50


def draw_hardware(device: DeviceSample, width: int) -> list[Line]:
    """Return all that is known apart from memory, by subject, and what the driver does not report.

    Empty where nothing is known.
    """
    if device.activity is None and device.hardware is None:
        return []
    is_nvidia = find_tools(device) is NVIDIA
    activity = device.activity or DeviceActivity()
    hardware = device.hardware or DeviceHardware()
    subjects: dict[str, tuple[_Fact, ...]] = {
        "clocks": tuple(_list_clocks(activity, hardware, is_nvidia=is_nvidia)),
        "power": tuple(_list_power(hardware)),
        "traffic": tuple(_list_traffic(activity, hardware, device.pci_address, is_nvidia=is_nvidia)),
        "errors": tuple(_list_errors(hardware)),
        "software": tuple(_list_software(hardware, is_nvidia=is_nvidia)),
    }
    lines: list[Line] = []
    missing: list[str] = []
    for subject, facts in subjects.items():
        known = [
            [Span(f"{name} ", "muted"), Span(f"{value} ", role)]
            for name, value, role in facts
            if value is not None
        ]
        missing += [name for name, value, _ in facts if value is None]
        lines += _draw_subject(Span(subject, "strong"), known, width)
    words = [[Span(word, "muted")] for word in ", ".join(missing).split()]
    return [*lines, *_draw_subject(Span("not reported", "muted"), words, width)]


def _draw_subject(subject: Span, pieces: Sequence[Line], width: int) -> list[Line]:
    """Return the pieces in as many lines as they need, after the subject or below it; empty without any."""
    if pieces and width < _NEXT_TO_FROM_CELLS:
        below = wrap_pieces(pieces, max(1, width - 1))
        return [[Span(f" {subject.text}", subject.role)], *([Span(" "), *line] for line in below)]
    wrapped = wrap_pieces(pieces, max(1, width - 1 - _SUBJECT_CELLS))
    heads = [f" {subject.text:<{_SUBJECT_CELLS}}", " " * (1 + _SUBJECT_CELLS)]
    return [[Span(heads[min(at, 1)], subject.role), *line] for at, line in enumerate(wrapped)]


def _list_clocks(activity: DeviceActivity, hardware: DeviceHardware, *, is_nvidia: bool) -> Iterator[_Fact]:
    # A streaming multiprocessor is NVIDIA's, and so are performance states.
    yield (
        "SM clock" if is_nvidia else "core clock",
        _clock(activity.sm_clock_mhz, hardware.sm_clock_max_mhz),
        "text",
    )
    yield "memory clock", _clock(activity.memory_clock_mhz, hardware.memory_clock_max_mhz), "text"
    state = activity.performance_state
    if is_nvidia or state is not None:
        yield "performance state", None if state is None else f"P{state}", "text"
    reasons = activity.throttle_reasons
    if reasons is not None and not reasons:
        yield "clocks lowered", "no", "text"
    else:
        is_fault = not FAULTS.isdisjoint(reasons or ())
        yield "clocks lowered by", ", ".join(reasons or ()) or None, "medium" if is_fault else "text"


def _list_power(hardware: DeviceHardware) -> Iterator[_Fact]:
    limit = hardware.power_limit_w
    yield "power cap", None if limit is None else f"{limit:.0f} W", "text"
    fan = hardware.fan_percent
    yield "fan", None if fan is None else f"{fan:.0f} %", "text"


def _list_traffic(
    activity: DeviceActivity, hardware: DeviceHardware, pci_address: str | None, *, is_nvidia: bool
) -> Iterator[_Fact]:
    bandwidth = activity.memory_bandwidth_percent
    yield "memory bandwidth", None if bandwidth is None else f"{bandwidth:.0f} %", "text"
    yield "PCIe sent", _rate(activity.pcie_sent_bytes_per_s), "text"
    yield "PCIe received", _rate(activity.pcie_received_bytes_per_s), "text"
    if is_nvidia:
        yield "NVLink sent", _rate(activity.nvlink_sent_bytes_per_s), "text"
        yield "NVLink received", _rate(activity.nvlink_received_bytes_per_s), "text"
    # Only some of AMD's GPUs have these links.
    if (activity.xgmi_sent_bytes_per_s, activity.xgmi_received_bytes_per_s) != (None, None):
        yield "XGMI sent", _rate(activity.xgmi_sent_bytes_per_s), "text"
        yield "XGMI received", _rate(activity.xgmi_received_bytes_per_s), "text"
    yield "PCIe generation", _count(hardware.pcie_generation), "text"
    yield "PCIe lanes", _count(hardware.pcie_lanes), "text"
    if pci_address is not None:
        yield "PCI address", pci_address, "text"


def _list_errors(hardware: DeviceHardware) -> Iterator[_Fact]:
    is_on = hardware.is_ecc_on
    yield "ECC", None if is_on is None else "on" if is_on else "off", "text"
    if is_on is not False:
        yield "corrected errors", _count(hardware.ecc_corrected), "text"
        uncorrected = hardware.ecc_uncorrected
        yield "uncorrected errors", _count(uncorrected), "medium" if uncorrected else "text"
    if hardware.retired_pages is None or hardware.remapped_rows is not None:
        yield "remapped rows", _count(hardware.remapped_rows), "text"
    else:
        yield "retired pages", _count(hardware.retired_pages), "text"
    if hardware.is_repair_pending:
        yield "repair", "waits for a reset of the GPU", "medium"


def _list_software(hardware: DeviceHardware, *, is_nvidia: bool) -> Iterator[_Fact]:
    yield "driver", hardware.driver_version, "text"
    if is_nvidia:
        yield "CUDA", hardware.cuda_version, "text"
        yield "compute mode", hardware.compute_mode, "text"


def _clock(now_mhz: int | None, most_mhz: int | None) -> str | None:
    if now_mhz is None:
        return None
    return f"{now_mhz:,} MHz" if most_mhz is None else f"{now_mhz:,} of {most_mhz:,} MHz"


def _rate(bytes_per_s: float | None) -> str | None:
    return None if bytes_per_s is None else f"{format_bytes(round(bytes_per_s))}/s"


def _count(number: int | None) -> str | None:
    return None if number is None else f"{number:,}"
