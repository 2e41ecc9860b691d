"""Recording: bytes of a sample, CPU of the writer, and how soon a moment of a long day is found.

Three kinds of samples: what the real sampler reads from pretend devices, whose memory is a sawtooth; figures
whose lower 32 bits are noise, the worst case; and the same noise of many nodes at once. The peer is what
`vramscope --json` prints, through gzip.
"""

import gzip
import random
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vramscope.engine.model import DeviceSample, HostSample, MemoryReading, ProcessReading, Sample
from vramscope.engine.recording import Recording, RecordingIdentity, RecordingWriter
from vramscope.exporters.json_lines import encode_line
from vramscope.exporters.status.document import describe_sample

from .budgets import Budget
from .machine import MIB, Machine
from .measure.tables import format_number, format_table
from .programs import find_vramscope

DAY_S, HOUR_S = 86_400, 3600
GIB = 1 << 30
START_S = 1_700_000_000.0
SEEKS = 400
PEER_S = 600
"""Seconds that the peer keeps; a day of it would take an hour to write."""
_CHANCE = random.Random(5)


@dataclass(frozen=True)
class RecordingCost:
    """What was measured."""

    day_s: int
    """Seconds of the day of 64 devices."""
    day_mib: float
    pretend_bytes: float
    """Bytes of a device-sample of pretend devices, without the tables of an empty recording."""
    noise_bytes: float
    """Bytes of a device-sample of the day, all included."""
    hour_bytes: float
    """Bytes of a sample of a single device for an hour of noise, all included."""
    peer_bytes: float
    open_s: float
    """Seconds until span, devices, findings and every minute of the day are there."""
    seek_p50_ms: float
    seek_p99_ms: float
    seek_cpu_p99_ms: float
    """CPU of the same, which a busy machine does not change."""
    peer_seek_ms: float
    """Milliseconds to the end of `PEER_S` seconds: a stream is read from its beginning."""
    nodes_percent: float
    """CPU of the writer of 1,024 devices on 128 nodes at 1 Hz, percent of a core."""
    node_percent: float
    """CPU of the writer of 1,024 devices on one node."""
    play_us: float
    """Microseconds of a device-sample when all of the day is read."""


def measure_recording(window_s: float, day_s: int = DAY_S) -> RecordingCost:
    """Return what recording costs.

    Args:
        window_s: Seconds for which the pretend devices are recorded.
        day_s: Seconds of the day.
    """
    with tempfile.TemporaryDirectory(prefix="recording-") as name:
        folder = Path(name)
        day = folder / "day.vscope"
        _write(day, (make_noise(64, tick) for tick in range(day_s)))
        seeks = list(_seek(day, day_s))
        walls_ms, cpus_ms = sorted(wall for wall, _ in seeks), sorted(cpu for _, cpu in seeks)
        peer_bytes, peer_seek_s = _measure_peer(folder / "peer.jsonl.gz")
        device_samples = 64 * day_s
        return RecordingCost(
            day_s=day_s,
            day_mib=day.stat().st_size / MIB,
            pretend_bytes=_measure_pretend(folder, 64, window_s),
            noise_bytes=day.stat().st_size / device_samples,
            hour_bytes=_measure_hour(folder / "hour.vscope"),
            peer_bytes=peer_bytes,
            open_s=_open(day),
            seek_p50_ms=walls_ms[SEEKS // 2],
            seek_p99_ms=walls_ms[int(0.99 * SEEKS)],
            seek_cpu_p99_ms=cpus_ms[int(0.99 * SEEKS)],
            peer_seek_ms=1000 * peer_seek_s,
            nodes_percent=_measure_writer(folder, nodes=128, devices=8, ticks=600),
            node_percent=_measure_writer(folder, nodes=1, devices=1024, ticks=120),
            play_us=1e6 * _play(day) / device_samples,
        )


def judge_recording(cost: RecordingCost) -> list[Budget]:
    """Return the budgets of recording."""
    return [
        Budget("recording: bytes of a device-sample, pretend", cost.pretend_bytes, 40, "B"),
        Budget("recording: bytes of a device-sample, noise", cost.noise_bytes, 40, "B"),
        Budget("recording: bytes of a sample, one device, an hour", cost.hour_bytes, 40, "B"),
        Budget("recording: a day of 64 devices opens", cost.open_s, 1.0, "s"),
        Budget("recording: seek, p99", cost.seek_p99_ms / 1000, 0.05, "s"),
        Budget("recording: CPU of 1,024 devices, 128 nodes", cost.nodes_percent, 5.0, "%"),
        Budget("recording: CPU of 1,024 devices, one node", cost.node_percent, 5.0, "%"),
    ]


def format_recording(cost: RecordingCost) -> str:
    """Return the table of what recording costs."""
    rows = [
        ["pretend devices: bytes of a device-sample", format_number(cost.pretend_bytes, 1)],
        ["noise: bytes of a device-sample", format_number(cost.noise_bytes, 1)],
        ["… of a single device for an hour, all included", format_number(cost.hour_bytes, 1)],
        ["JSON lines, gzip: bytes of a device-sample", format_number(cost.peer_bytes, 1)],
        [f"64 devices for {cost.day_s / 3600:g} h: MiB", format_number(cost.day_mib, 1)],
        ["… open, with every minute: s", format_number(cost.open_s, 3)],
        ["… seek, median: ms", format_number(cost.seek_p50_ms, 1)],
        ["… seek, p99: ms", format_number(cost.seek_p99_ms, 1)],
        ["… seek, p99 of its CPU: ms", format_number(cost.seek_cpu_p99_ms, 1)],
        [f"JSON lines, gzip: end of {PEER_S} s: ms", format_number(cost.peer_seek_ms, 0)],
        ["… read whole: µs of a device-sample", format_number(cost.play_us, 1)],
        ["CPU of writing 128 nodes of 8 devices at 1 Hz: %", format_number(cost.nodes_percent, 2)],
        ["CPU of writing 1 node of 1,024 devices at 1 Hz: %", format_number(cost.node_percent, 2)],
    ]
    return format_table("Recording", ["", "measured"], rows)


def make_noise(devices: int, tick: int, node: int = 0) -> Sample:
    """Return a sample in which every figure that may change does, by chance."""
    return Sample(
        f"node{node:03d}",
        tick,
        START_S + tick + _CHANCE.getrandbits(10) / 500_000,
        1.0,
        tuple(_make_device(node, index) for index in range(devices)),
        host=HostSample(2048 * GIB, _CHANCE.getrandbits(40) << 12, cpu_percent=_CHANCE.getrandbits(10) / 10),
    )


def _make_device(node: int, index: int) -> DeviceSample:
    bits = _CHANCE.getrandbits
    used, total = 40 * GIB + bits(32), 80 * GIB
    holders = tuple(
        ProcessReading(1000 * index + rank, "user", f"python train.py --rank {rank}", 20 * GIB)
        for rank in range(2)
    )
    return DeviceSample(
        f"GPU-{node:08x}-{index:04x}-4a6f-9d1c-{node * 7919 + index:012x}",
        index,
        "NVIDIA H100 80GB HBM3",
        age_s=bits(7) / 1000,
        memory=MemoryReading(total, used, total - used - 600 * MIB, used - bits(29), used + bits(29)),
        utilization_percent=float(90 + bits(3)),
        temperature_c=float(58 + bits(1)),
        power_w=500 + bits(17) / 1000,
        processes=holders,
    )


def _write(path: Path, samples: Iterator[Sample]) -> float:
    """Record samples, committed once a tick, and return the CPU seconds that writing took."""
    started_s = time.process_time()
    writer = RecordingWriter(path, RecordingIdentity("node000", START_S, "benchmark"))
    cpu_s, tick = time.process_time() - started_s, 0
    for sample in samples:
        started_s = time.process_time()
        if sample.seq != tick:
            writer.flush()
            tick = sample.seq
        writer.append(sample)
        cpu_s += time.process_time() - started_s
    started_s = time.process_time()
    writer.close()
    return cpu_s + time.process_time() - started_s


def _measure_hour(path: Path) -> float:
    """Return the bytes of a sample where there are few of them: what a file has anyway counts most."""
    _write(path, (make_noise(1, tick) for tick in range(HOUR_S)))
    return path.stat().st_size / HOUR_S


def _measure_writer(folder: Path, *, nodes: int, devices: int, ticks: int) -> float:
    """Return the CPU of writing at 1 Hz, percent of a core, with every block that it comes to."""
    samples = (make_noise(devices, tick, node) for tick in range(ticks) for node in range(nodes))
    path = folder / f"writer-{nodes}.vscope"
    cpu_s = _write(path, samples)
    path.unlink()
    return 100 * cpu_s / ticks


def _measure_pretend(folder: Path, devices: int, window_s: float) -> float:
    """Return the bytes of a device-sample that the real program records of pretend devices."""
    path, empty = folder / "pretend.vscope", folder / "empty.vscope"
    _write(empty, iter(()))
    with Machine(devices) as machine:
        command = [*find_vramscope().live, "record", "-o", str(path), "--duration", f"{window_s}s"]
        subprocess.run(command, env=machine.env, check=True, stderr=subprocess.DEVNULL)
    with Recording(path) as recording:
        device_samples = sum(len(sample.devices) for sample in recording.samples())
    return (path.stat().st_size - empty.stat().st_size) / device_samples


def _open(path: Path) -> float:
    """Return the seconds until all that a day is drawn from is there."""
    started_s = time.perf_counter()
    with Recording(path) as recording:
        is_whole = all((recording.span, recording.devices, recording.overview(), recording.findings() == ()))
    if not is_whole:
        raise RuntimeError(f"{path} is not whole")
    return time.perf_counter() - started_s


def _seek(path: Path, day_s: int) -> Iterator[tuple[float, float]]:
    """Yield the milliseconds of finding one moment after the other, by chance, and those of its CPU."""
    with Recording(path) as recording:
        for _ in range(SEEKS):
            time_s = START_S + 1 + _CHANCE.random() * (day_s - 1)
            started_s, cpu_s = time.perf_counter(), time.process_time()
            sample = recording.sample_at(time_s)
            yield 1000 * (time.perf_counter() - started_s), 1000 * (time.process_time() - cpu_s)
            if sample is None or not 0 <= time_s - sample.time_s < 1.01:
                raise RuntimeError(f"the wrong sample was found at {time_s}")


def _play(path: Path) -> float:
    """Return the seconds in which all samples are read."""
    started_s = time.perf_counter()
    with Recording(path) as recording:
        for _ in recording.samples():
            pass
    return time.perf_counter() - started_s


def _measure_peer(path: Path) -> tuple[float, float]:
    """Return the bytes of a device-sample in JSON lines through gzip, and the seconds to the last line."""
    with gzip.open(path, "wb", compresslevel=6) as file:
        for tick in range(PEER_S):
            file.write(encode_line(describe_sample(make_noise(64, tick))))
    started_s = time.perf_counter()
    with gzip.open(path) as file:
        for _ in file:
            pass
    return path.stat().st_size / (64 * PEER_S), time.perf_counter() - started_s
