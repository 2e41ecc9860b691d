"""What PyTorch says at an out-of-memory error: each wording of the years, in logs, in files, and damaged."""

import json
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vramscope.engine.errors import InputFileError
from vramscope.engine.files.base.packed_file import CHUNK_BYTES
from vramscope.engine.files.base.series_reader import MOST_BYTES
from vramscope.engine.files.flight_record import read_memory_file, read_oom_file, recognize_memory_file
from vramscope.engine.files.framework.oom_text import MOST_CHARACTERS, OomText, parse_oom_text
from vramscope.engine.sampling.series_source import open_series
from vramscope.exporters.inspect.text import describe_memory_file

from .series_files import play, write_lines

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
NEW = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.22 GiB. GPU 3 has a total capacity of "
    "79.15 GiB of which 17.88 MiB is free. Process 1234 has 10.00 GiB memory in use. Including non-PyTorch "
    "memory, this process has 69.10 GiB memory in use. 72.00 GiB allowed; Of the allocated memory 65.30 GiB "
    "is allocated by PyTorch, with 1.50 GiB allocated in private pools (e.g., CUDA Graphs), and 2.94 GiB is "
    "reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
NEW_FIGURES = OomText(
    "CUDA",
    round(1.22 * GIB),
    3,
    round(79.15 * GIB),
    round(17.88 * MIB),
    round(69.10 * GIB),
    ((1234, 10 * GIB),),
    72 * GIB,
    round(65.3 * GIB),
    round(1.5 * GIB),
    round(65.3 * GIB) + round(2.94 * GIB),
)
OLD = (
    "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 4; 31.75 GiB total capacity; "
    "30.29 GiB already allocated; 3.75 MiB free; 30.40 GiB reserved in total by PyTorch)"
)
OLD_FIGURES = OomText(
    "CUDA",
    20 * MIB,
    4,
    round(31.75 * GIB),
    round(3.75 * MIB),
    allocated_bytes=round(30.29 * GIB),
    reserved_bytes=round(30.4 * GIB),
)


@pytest.mark.parametrize(
    ("text", "figures"),
    [
        (NEW, NEW_FIGURES),
        (NEW.replace("capacity", "capacty"), NEW_FIGURES),
        (OLD, OLD_FIGURES),
        (OLD.replace("reserved in total by PyTorch)", "cached)"), OLD_FIGURES),
        (
            "HIP out of memory. Tried to allocate 512 bytes. GPU 0 has a total capacity of 64.00 GiB of "
            "which 1.00 KiB is free. Of the allocated memory 1.00 GiB is allocated by PyTorch, and 0 bytes "
            "is reserved by PyTorch but unallocated.",
            OomText("HIP", 512, 0, 64 * GIB, KIB, allocated_bytes=GIB, reserved_bytes=GIB),
        ),
        ("XPU out of memory. Tried to allocate 2.00 GiB.", OomText("XPU", 2 * GIB)),
        (f"{OLD} {NEW}", OLD_FIGURES),
        ("CUDA error: out of memory", None),
        ("CUDA out of memory. Tried to allocate 99999999.00 TiB.", OomText("CUDA")),
    ],
    ids=["new", "misspelt", "old", "oldest", "hip", "xpu", "two", "another", "absurd"],
)
def test_a_text_says_its_figures_and_no_others(text: str, figures: OomText | None) -> None:
    assert parse_oom_text(text) == figures


def test_an_error_in_a_log_is_a_sample_and_counted_once(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "train.log",
        "[2025-07-26 02:46:53] [Rank 3] (after 2 iterations) memory (MB) | allocated: 100 | reserved: 200",
        "[2025-07-26 02:46:53] [Rank 5] (after 2 iterations) memory (MB) | allocated: 100 | reserved: 200",
        "[2025-07-26 02:46:58] step",
        f"[rank3]: {NEW}",
        f"[rank3]: {NEW}",
        OLD,
        "[2025-07-26 02:47:03] [Rank 3] (after 3 iterations) memory (MB) | allocated: 90 | reserved: 200",
    )
    source, samples = play(path)
    start_s = datetime(2025, 7, 26, 2, 46, 53).timestamp()
    assert [it.time_s - start_s for it in samples] == [0, 5, 10]
    failed = {device.index: device for device in samples[1].devices}
    assert set(failed) == {3, 4}
    device = failed[3]
    assert device.allocator is not None
    assert (device.allocator.allocated_bytes, device.allocator.ooms) == (NEW_FIGURES.allocated_bytes, 1)
    assert (device.memory.total_bytes, device.memory.used_bytes) == (
        NEW_FIGURES.total_bytes,
        NEW_FIGURES.used_bytes,
    )
    after = samples[2].devices[0].allocator
    assert after is not None
    assert (after.allocated_bytes, after.ooms) == (90 * MIB, 1)
    notes = "\n".join(source.notes)
    assert "2 out-of-memory errors are in the log, the first at line 4" in notes
    assert "line 4: rank 3 ran out of memory, 1.2 GiB were asked for, 18 MiB free of 79.2 GiB" in notes
    assert source.label(failed[4].uuid) == failed[4].name == "GPU 4 (rank unknown)"


def test_an_error_in_a_log_of_one_process_is_of_its_device(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "train.log", "[2025-07-26 02:46:53] MA 6.1 GB  Max_MA 8 GB  CA 12 GB  Max_CA 12 GB", OLD
    )
    _, samples = play(path)
    assert [len(it.devices) for it in samples] == [1]
    assert samples[0].devices[0].memory.total_bytes == OLD_FIGURES.total_bytes


@pytest.mark.parametrize(
    "before", ["", "x" * (CHUNK_BYTES - 30) + "\n", "x" * (CHUNK_BYTES - 200) + "\n", "y\n" * CHUNK_BYTES]
)
def test_a_text_anywhere_in_a_file_is_explained(tmp_path: Path, before: str) -> None:
    path = tmp_path / "job.out"
    path.write_text(f"{before}[rank3]: {NEW}\nmore\n{OLD}\n{OLD}\n")
    assert recognize_memory_file(path) == "out-of-memory text"
    record = read_oom_file(path)
    assert (record.failure.size_bytes, record.device.index) == (NEW_FIGURES.asked_bytes, 3)
    assert record.process.coordinates is not None
    assert record.process.coordinates.rank == 3
    assert record.failure.message == NEW.partition(": ")[2]
    line = before.count("\n") + 1
    assert record.notes[0] == f"numbers are rounded as in the text at line {line:,}"
    assert "more out-of-memory texts in the file: 2" in record.notes
    text = describe_memory_file(record, top=5, width=100)
    assert "a request of 1.2 GiB failed on a device of 79.2 GiB" in text
    assert "no tensor   2.9 GiB" in text
    assert "expandable_segments:True" in text
    assert "process 1234 used 10.0 GiB of the device" in text


def test_a_text_that_a_terminal_has_wrapped_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "pasted.txt"
    path.write_text("\n".join(OLD[at : at + 60] for at in range(0, len(OLD), 60)) + "\n\nGPU 9 has\n")
    record = read_oom_file(path)
    assert (record.device.index, record.device.total_bytes) == (4, OLD_FIGURES.total_bytes)
    assert record.stats["reserved_bytes.all.current"] == OLD_FIGURES.reserved_bytes


def test_a_file_with_an_error_alone_is_no_series_and_says_what_explains_it(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "oom.txt", OLD)
    with pytest.raises(InputFileError, match="the error at line 1 is explained by: vramscope inspect FILE"):
        open_series(path)


@given(text=st.text(max_size=80), at=st.integers(0, 400), cut=st.integers(0, 60))
@example(text="", at=1, cut=23)  # tCUDA out of memory
def test_a_damaged_text_gives_figures_of_memory_or_none(
    text: str, at: int, cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    damaged = NEW[:at] + text + NEW[at + cut :]
    said = parse_oom_text(damaged * 20)
    if said is not None:
        sizes = (said.asked_bytes, said.total_bytes, said.free_bytes, said.allocated_bytes)
        assert all(size is None or 0 <= size < MOST_BYTES for size in sizes)
    path = tmp_path_factory.getbasetemp() / "damaged-oom.txt"
    path.write_bytes(damaged.encode("utf-8", "surrogatepass"))
    refused = ""
    try:
        record = read_memory_file(path)
    except InputFileError as refusal:
        refused = str(refusal)
    else:
        assert len(describe_memory_file(record, top=5, width=80)) < 40 * MOST_CHARACTERS
    assert (said is None) == bool(refused)


def test_an_error_of_a_gpu_is_kept_apart_from_the_rank_of_that_number(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "train.log",
        "[2025-07-26 02:46:53] [Rank 1] (after 2 iterations) memory (MB) | allocated: 100 | reserved: 200",
        "[2025-07-26 02:46:53] [Rank 2] (after 2 iterations) memory (MB) | allocated: 100 | reserved: 200",
        OLD.replace("GPU 4", "GPU 0"),
        "[2025-07-26 02:46:58] [Rank 0] (after 2 iterations) memory (MB) | allocated: 100 | reserved: 200",
    )
    source, samples = play(path)
    told = [(it.index, source.label(it.uuid)) for sample in samples for it in sample.devices]
    assert told == [(0, "GPU 0 (rank unknown)"), (1, "rank 1"), (2, "rank 2"), (0, "rank 0")]
    assert not any("left out" in note for note in source.notes)


def test_an_error_in_a_log_of_json_lines_is_explained(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "train.jsonl", json.dumps({"level": "ERROR", "message": NEW}))
    assert recognize_memory_file(path) == "out-of-memory text"
    record = read_oom_file(path)
    assert record.stats["reserved_bytes.all.current"] == NEW_FIGURES.reserved_bytes
