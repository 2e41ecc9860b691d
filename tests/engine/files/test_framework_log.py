"""Lines of memory of frameworks: each in its own units, at a time that the log tells, or left out."""

from contextlib import suppress
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramscope.engine.errors import InputFileError
from vramscope.engine.files.base.series_reader import MOST_BYTES, RecordError
from vramscope.engine.files.framework.log import FrameworkLog, MemoryLine, parse_memory_line
from vramscope.engine.sampling.series_source import open_series

from .series_files import play, write_lines

MIB, GIB = 1 << 20, 1 << 30
MEGATRON = (
    "[Rank 3] (after 2 iterations) memory (MB) | allocated: 25372.12109375 | max allocated: 27404.59 | "
    "reserved: 28672.0 | max reserved: 28672.0 | total device memory used: 30111.25"
)
BRIDGE = (
    "[Rank 0] (after 2 iterations) memory (GB) | mem-allocated-gigabytes: 23.1 | mem-active-gigabytes: 23.2"
    " | mem-reserved-gigabytes: 30.5 | mem-alloc-retires: 0"
)
TITAN = (
    "[rank1]:[titan] 2025-07-26 02:46:53,123 - root - INFO - \x1b[31mstep: 20  \x1b[32mloss: 11.83506  "
    "\x1b[34mgrad_norm:  9.6669  \x1b[38;2;54;234;195mmemory: 48.87GiB(51.44%)  \x1b[39mtps: 4,376"
)
DEEPSPEED = "MA 6.1 GB         Max_MA 8.65 GB         CA 12.03 GB         Max_CA 12 GB "
NANOTRON = (
    "01/23/2024 10:11:12 [INFO]:  Memory usage: 123.45MiB. Peak allocated 234.56MiB. Peak reserved: 9MiB"
)
PICOTRON = "[rank 2] Step: 5     | Loss: 10.1234 | Tokens/s: 1.2K | MFU: 12.34% | Memory usage:  12.34GB"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.22 GiB."
TIMER = (
    "[2023-01-01 12:00:00,123] [INFO] epoch=0/micro_step=10/global_step=7, RunningAvgSamplesPerSec=3.2, "
    "CurrSamplesPerSec=3.1, MemAllocated=6.1GB, MaxMemAllocated=8.65GB"
)
USAGE = (
    "time (ms) | fwd: 12.3 | mem_allocated: 1.2345 GB | max_mem_allocated: 2.0000 GB | "
    "cache_allocated: 3.5000 GB | max_cache_allocated: 4.0000 GB"
)
ONNX = (
    "[3/8] step 20 memory (MiB) | phase: pre_forward | allocated: 1866 | max allocated: 1900 | "
    "cached: 1874 | max cached: 1880 | inactive: 8 | max inactive: 8"
)
NEMO = "on_train_batch_end rank: 2 mem: 12.34 / 15.6"
OOMPTIMIZER = "[BEGIN step] [CUDA RAM CURRENT: 123.4MB] [CUDA RAM MAX: 456.7MB]"
RELEASE = "rank:2, Before memory release - Allocated: 40699025920, Reserved: 42649780224"
LINES = (
    *(MEGATRON, BRIDGE, TITAN, DEEPSPEED, NANOTRON, PICOTRON),
    *(TIMER, USAGE, ONNX, NEMO, OOMPTIMIZER, RELEASE),
)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (MEGATRON, MemoryLine(3, 2, round(25372.12109375 * MIB), 28672 * MIB, round(30111.25 * MIB))),
        (BRIDGE, MemoryLine(0, 2, 23_100_000_000, 30_500_000_000)),
        (TITAN, MemoryLine(1, 20, None, round(48.87 * GIB))),
        (DEEPSPEED, MemoryLine(None, None, round(6.1 * GIB), round(12.03 * GIB))),
        (f"4: {DEEPSPEED}", MemoryLine(4, None, round(6.1 * GIB), round(12.03 * GIB))),
        (NANOTRON, MemoryLine(None, None, round(123.45 * MIB))),
        (PICOTRON, MemoryLine(2, 5, None, 12_340_000_000)),
        (TIMER, MemoryLine(None, 7, round(6.1 * GIB))),
        (USAGE, MemoryLine(None, None, round(1.2345 * GIB), round(3.5 * GIB))),
        (ONNX, MemoryLine(3, 20, 1866 * MIB, 1874 * MIB)),
        (NEMO, MemoryLine(2, None, round(12.34 * GIB))),
        (OOMPTIMIZER, MemoryLine(None, None, round(123.4 * MIB))),
        (RELEASE, MemoryLine(2, None, 40699025920, 42649780224)),
        (OOM, None),
        ("Theoretical memory footprints: weight and optimizer=17138.10 MB", None),
    ],
    ids=[
        *("megatron", "bridge", "torchtitan", "deepspeed", "srun", "nanotron", "picotron"),
        *("timer", "usage", "onnxruntime", "nemo", "oomptimizer", "release", "oom", "theory"),
    ],
)
def test_a_line_says_what_its_framework_means(line: str, said: MemoryLine | None) -> None:
    assert parse_memory_line(line) == said


def test_ranks_are_devices_at_the_times_of_the_dates_above(tmp_path: Path) -> None:
    iteration = (
        " [2025-07-26 02:46:{}] iteration {}/ 10 | elapsed time per iteration (ms): 1234.5 | lm loss: 1.05"
    )
    path = write_lines(
        tmp_path / "train.log",
        "using world size: 8",
        MEGATRON,
        iteration.format("53", 2),
        MEGATRON,
        MEGATRON.replace("Rank 3", "Rank 5").replace("25372.12109375", "1.2.3"),
        MEGATRON.replace("Rank 3", "Rank 7"),
        OOM,
        iteration.format("58", 3),
        MEGATRON.replace("allocated: 25372.12109375", "allocated: 100"),
    )
    source, samples = play(path)
    assert (source.format, source.clock) == ("framework log", "wall")
    start_s = datetime(2025, 7, 26, 2, 46, 53).timestamp()
    assert [(it.time_s - start_s, [device.index for device in it.devices]) for it in samples] == [
        (0, [3, 7]),
        (5, [3]),
    ]
    device = samples[1].devices[0]
    assert device.allocator is not None
    assert (device.allocator.allocated_bytes, device.allocator.reserved_bytes) == (100 * MIB, 28672 * MIB)
    assert (device.memory.used_bytes, device.memory.total_bytes, device.step) == (
        round(30111.25 * MIB),
        None,
        2,
    )
    told = "\n".join(source.notes)
    assert "1 out-of-memory error is in the log, the first at line 7" in told
    assert "line 2: has no time" in told
    assert "line 5: '1.2.3' is not a memory size" in told


def test_what_a_log_tells_beside_its_lines_of_memory_is_kept(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "train.log",
        "[rank1]:[titan] 2025-07-26 02:46:50,000 - root - INFO - CUDA capacity: NVIDIA H100 80GB HBM3 with "
        "79.10GiB memory",
        "Theoretical memory footprints: weight and optimizer=17138.10 MB, activation=1234.00 MB, "
        "total=18372.10 MB",
        "[rank1]:[titan] 2025-07-26 02:46:52,000 - root - WARN - \x1b[31m3 CUDA memory allocation retries.",
        "[rank1]:[titan] 2025-07-26 02:46:52,000 - root - WARNING - 1 CUDA OOM errors thrown.",
        TITAN,
    )
    source, samples = play(path)
    device = samples[0].devices[0]
    assert (device.index, device.name, device.memory.total_bytes) == (
        1,
        "NVIDIA H100 80GB HBM3",
        round(79.1 * GIB),
    )
    assert device.allocator is not None
    assert (device.allocator.retries, device.allocator.ooms) == (3, 1)
    assert (
        "line 2 has a theoretical size, which is left out: 16.7 GiB of weights and optimizer, 1.2 GiB "
        "of activations, 17.9 GiB in all"
    ) in source.notes


def test_a_log_without_a_date_is_refused_with_what_is_missing(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "train.log", DEEPSPEED, DEEPSPEED)
    with pytest.raises(InputFileError, match=r"line 1: has no time; expected a line with a date"):
        open_series(path)


@given(
    damages=st.lists(st.tuples(st.sampled_from(LINES), st.integers(0, 200), st.text(max_size=4)), max_size=6)
)
def test_a_damaged_line_gives_a_figure_of_memory_or_is_left_out(
    damages: list[tuple[str, int, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    lines = [TITAN, *(line[:at] + text + line[at + len(text) :] for line, at, text in damages)]
    path = tmp_path_factory.getbasetemp() / "damaged.log"
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    reader = FrameworkLog(path)
    for record in reader.records():
        figures = (record.allocated_bytes, record.reserved_bytes, record.used_bytes)
        assert all(it is None or 0 <= it < MOST_BYTES for it in figures)
    assert reader.notes


@given(st.text(max_size=300))
def test_no_text_ends_in_anything_but_an_answer(text: str) -> None:
    for line in (text, f"[Rank 1] memory (MB) | {text}", f"step: 1 memory: {text}GiB(1%)"):
        with suppress(RecordError):
            said = parse_memory_line(line)
            assert said is None or all(size is None or 0 <= size < MOST_BYTES for size in said[2:])
