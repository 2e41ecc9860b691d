"""A device memory profile of JAX explained: what lived, by device, kind and line, as text and JSON."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Literal

import msgspec

from ..analyzers.segments import find_caller, is_installed
from ..analyzers.sentence import count, cut_words
from ..engine.files.device_profile import DeviceProfile, LiveBuffers
from ..engine.model.memory_snapshot import Frame
from ..engine.text import make_printable
from ..engine.units import format_bytes, format_share
from .stack_text import render_frames
from .text import wrap

NO_DEVICE = "no device"


class LineMemory(msgspec.Struct, frozen=True):
    """Memory of one line of the program."""

    size_bytes: int
    count: int
    share: float
    """Share of all bytes of the device, from 0 to 1."""
    headline: Frame | None
    """The innermost line outside of installed packages; else the innermost; None without a stack."""
    frames: tuple[Frame, ...]
    """The stack with most of its bytes, innermost first, without frames of installed packages."""


class KindMemory(msgspec.Struct, frozen=True):
    kind: str
    """`buffer` (arrays), `executable` (compiled programs)."""
    size_bytes: int
    count: int


class ProfiledDevice(msgspec.Struct, frozen=True):
    device: str
    """As JAX names it; `no device` for what is on none, such as executables."""
    size_bytes: int
    kinds: tuple[KindMemory, ...]
    lines: tuple[LineMemory, ...]
    """The largest first; as many as were asked for."""
    lines_found: int


class DeviceProfileReport(msgspec.Struct, frozen=True, kw_only=True):
    schema: Literal["vramscope.device-profile/1"] = "vramscope.device-profile/1"
    file: str
    size_bytes: int
    devices: tuple[ProfiledDevice, ...]
    """Most bytes first."""
    notes: tuple[str, ...]


def summarize_device_profile(profile: DeviceProfile, file: str, *, top: int) -> DeviceProfileReport:
    by_device: dict[str, list[LiveBuffers]] = defaultdict(list)
    for buffers in profile.buffers:
        by_device[buffers.device or NO_DEVICE].append(buffers)
    devices = [_sum_device(name, found, top) for name, found in by_device.items()]
    return DeviceProfileReport(
        file=file,
        size_bytes=sum(device.size_bytes for device in devices),
        devices=tuple(sorted(devices, key=lambda it: (-it.size_bytes, it.device))),
        notes=profile.notes,
    )


def _sum_device(name: str, found: list[LiveBuffers], top: int) -> ProfiledDevice:
    total = sum(it.size_bytes for it in found)
    kinds: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    lines: dict[Frame | None, list[LiveBuffers]] = defaultdict(list)
    for it in found:
        kinds[it.kind][0] += it.size_bytes
        kinds[it.kind][1] += it.count
        lines[find_caller(it.frames)].append(it)
    rows = []
    for line, members in lines.items():
        size = sum(it.size_bytes for it in members)
        frames = max(members, key=lambda it: it.size_bytes).frames
        # JAX has a dozen frames of installed packages in each stack.
        own = tuple(frame for frame in frames if not is_installed(frame.filename))
        rows.append(
            LineMemory(
                size_bytes=size,
                count=sum(it.count for it in members),
                share=size / max(total, 1),
                headline=line,
                frames=own or frames,
            )
        )
    return ProfiledDevice(
        device=name,
        size_bytes=total,
        kinds=tuple(KindMemory(kind, size, number) for kind, (size, number) in kinds.items()),
        lines=tuple(sorted(rows, key=lambda it: -it.size_bytes)[:top]),
        lines_found=len(rows),
    )


def describe_device_profile(report: DeviceProfileReport, width: int) -> str:
    lines: list[str] = []
    if not report.devices:
        lines.append("nothing lived on any device")
    for device in report.devices:
        lines += [*_describe(device, width), ""]
    lines += wrap(
        "the profile counts what JAX holds for the program; XLA's preallocation (75 % of a GPU unless "
        "XLA_PYTHON_CLIENT_PREALLOCATE=false) is used on the device whether or not anything lives in it",
        width,
    )
    for note in report.notes:
        lines += wrap(f"note: {make_printable(note)}", width)
    return "\n".join(lines).rstrip("\n") + "\n"


def _describe(device: ProfiledDevice, width: int) -> Iterator[str]:
    kinds = ", ".join(
        f"{format_bytes(it.size_bytes)} in {count(it.count, make_printable(it.kind))}" for it in device.kinds
    )
    yield cut_words(f"{make_printable(device.device)}: {format_bytes(device.size_bytes)} ({kinds})", width)
    shown = (
        "" if device.lines_found <= len(device.lines) else f", {len(device.lines)} of {device.lines_found:,}"
    )
    if device.size_bytes:
        yield cut_words(f"  by line that made it{shown}", width)
    for line in device.lines if device.size_bytes else ():
        name = "no stack recorded" if line.headline is None else make_printable(line.headline.name)
        yield cut_words(
            f"  {format_bytes(line.size_bytes)}  {format_share(line.share, 1)}  "
            f"{count(line.count, 'piece')}  {name}",
            width,
        )
        yield from render_frames(line.frames, width, line.headline)
