"""Files of 10 GiB, most of which is nothing: read or refused in one line, in bounded memory."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from tests import REPOSITORY

from ...fuzz.targets import TARGETS, TRACE_NAME
from ...vramscope.cli.running import environment
from .test_hostile_files import recorded

HUGE_BYTES = 10 << 30
MOST_PEAK_KIB = 256 << 10
READ = """
import resource, sys
from pathlib import Path
from vramscope.engine.errors import VramscopeError
from vramscope.engine.files.flight_record import read_memory_file
from vramscope.engine.files.memory_trace.reading import read_memory_trace
from vramscope.engine.recording import Recording
from vramscope.engine.sampling.series_source import open_series

def read(path):
    if path.suffix == ".vscope":
        with Recording(path) as recording:
            return f"{len(list(recording.samples()))} samples"
    if path.name.startswith("memory_trace"):
        return read_memory_trace(path)
    return read_memory_file(path) if path.suffix == ".pickle" else list(open_series(path).samples())

for name in sys.argv[1:]:
    try:
        print(read(Path(name)))
    except VramscopeError as error:
        print(error)
# getrusage would tell the peak of the process that was forked to start this one, too.
status = Path("/proc/self/status").read_text()
print(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")))
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
LOG = (
    b"timestamp, index, memory.used [MiB], memory.total [MiB]\n2025/06/23 10:30:00.000, 0, 7 MiB, 81559 MiB\n"
)


@pytest.fixture
def heads() -> dict[str, bytes]:
    """Return what each file begins with, by its name."""
    (trace,) = TARGETS["trace"].seeds()
    return {
        "run.vscope": recorded(),
        "other.vscope": b"SQLite format 3\0",
        "a.csv": b"time_s,device,used_bytes\n1,0,5\n2,0,6\n",
        "b.log": LOG,
        "c.jsonl": b'{"schema":"vramscope.status/1","time":1.5,"node":"n","devices":[]}\n',
        "d.json": b'{"metadata": {}, "snapshots": {"0": [',
        TRACE_NAME: trace,
        "e.pickle": pickle.dumps({"segments": []}, protocol=4)[:-1],
    }


def test_each_is_read_or_refused_in_one_line_and_in_bounded_memory(
    heads: dict[str, bytes], tmp_path: Path
) -> None:
    for name, head in heads.items():
        with (tmp_path / name).open("wb") as file:
            file.write(head)
            file.truncate(HUGE_BYTES)
    done = subprocess.run(
        [sys.executable, "-c", READ, *(str(tmp_path / name) for name in heads)],
        env=environment(),
        cwd=REPOSITORY,
        capture_output=True,
        encoding="utf-8",
        check=True,
        timeout=60,
    )
    *told, peak_kib, peak_of_children_kib = done.stdout.splitlines()
    assert told[0] == "1210 samples"
    expected = ["not a recording", "line 4: longer than", "line 3: longer than", "line 2: longer than"]
    expected += ["10.0 GiB is too large", "10.0 GiB is too large", "it is damaged"]
    assert len(told) == len(heads)
    for name, line, words in zip([*heads][1:], told[1:], expected, strict=True):
        assert line.startswith(f"{tmp_path / name}: "), line
        assert words in line
    assert max(int(peak_kib), int(peak_of_children_kib)) < MOST_PEAK_KIB
