"""Where flight records lie, and which one is the newest."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ..paths import locate_runtime_folder, state_folder

PATTERN = "oom-*.json.gz"
"""Names of flight records; the probe writes under another name and renames."""


def list_flight_folders(environ: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """Return where a probe writes its flight records, the place that it tries first before the others.

    Args:
        environ: Environment variables; None for those of this process.
    """
    environ = os.environ if environ is None else environ
    folders = [state_folder(environ) / "flight", locate_runtime_folder(environ) / "flight"]
    chosen = environ.get("VRAMSCOPE_FLIGHT_DIR")
    return tuple(dict.fromkeys([Path(chosen), *folders] if chosen else folders))


def find_newest_flight_record(folders: Sequence[Path]) -> Path | None:
    """Return the flight record that was written last, or None where there is none.

    Args:
        folders: Where to look; those that are absent or cannot be read hold none.
    """
    found = [record for folder in folders for record in _list_records(folder)]
    return max(found)[1] if found else None


def _list_records(folder: Path) -> Iterator[tuple[float, Path]]:
    """Yield when each record of a folder was written, and its path."""
    try:
        paths = list(folder.glob(PATTERN))
    except OSError:
        return
    for path in paths:
        try:
            yield path.stat().st_mtime, path
        except OSError:
            continue  # removed in this moment
