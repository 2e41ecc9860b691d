"""The peaks that the processes of a job have left in the folder of their `vramscope run`."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ..errors import RuntimeFolderError
from ..model import RankCoordinates
from ..model.outside import OutsideUse
from ..paths import explain_unwritable, open_runtime_folder
from ..sources.processes import read_start_ticks

# With the pid of the `vramscope run` that made it.
_NAME = "summary-{}-"
# A file of ours has about 500 bytes.
_MOST_BYTES = 64 * 1024
_MOST_FILES = 65_536


class ProbedDevicePeaks(msgspec.Struct, frozen=True):
    """The device of such a process."""

    index: int | None = None
    uuid: str | None = None
    name: str | None = None
    total_bytes: int | None = None


class ProcessPeaks(msgspec.Struct, frozen=True, kw_only=True):
    """What one process used at the most, as its probe wrote it last."""

    pid: int
    allocated_bytes: int
    reserved_bytes: int
    ooms: int = 0
    is_simulated: bool = False
    device: ProbedDevicePeaks | None = None
    coordinates: RankCoordinates | None = None
    capacity_bytes: int | None = None
    context_bytes: int | None = None
    flight_record: str | None = None
    # On a simulated card, what takes more of a real one than tensors; None where that is unknown.
    uses: OutsideUse | None = None


@contextmanager
def summary_folder(runtime_dir: Path) -> Iterator[Path]:
    """Yield a new folder for the processes of a job, removed at the end.

    Raises:
        RuntimeFolderError: The runtime folder is not private, or nothing can be written there.
    """
    open_runtime_folder(runtime_dir)
    _remove_left_folders(runtime_dir)
    try:
        folder = Path(tempfile.mkdtemp(prefix=_NAME.format(os.getpid()), dir=runtime_dir))
    except OSError as error:
        raise RuntimeFolderError(explain_unwritable(runtime_dir, error)) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_left_folders(runtime_dir: Path) -> None:
    """Remove the folders of those who were killed before they could."""
    for folder in runtime_dir.glob(_NAME.format("*") + "*"):
        pid = folder.name.split("-")[1]
        if pid.isdecimal() and read_start_ticks(int(pid)) is None:
            shutil.rmtree(folder, ignore_errors=True)


def read_peaks(folder: Path) -> list[ProcessPeaks]:
    """Return the peaks of all processes that wrote theirs, by pid; a file that is not whole is left out."""
    found = []
    with os.scandir(folder) as entries:
        for _, entry in zip(range(_MOST_FILES), entries, strict=False):
            try:
                if entry.name.endswith(".json") and entry.stat().st_size <= _MOST_BYTES:
                    found.append(msgspec.json.decode(Path(entry.path).read_bytes(), type=ProcessPeaks))
            except (OSError, msgspec.DecodeError):
                continue
    return sorted(found, key=lambda it: it.pid)
