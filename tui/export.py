"""Exporting what is seen: the picture as SVG, and beside it the figures as JSON."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from ..engine.bus.snapshot import Snapshot
from ..exporters.json_lines import encode_line
from ..exporters.status import describe_snapshot


def export_view(svg: str, snapshot: Snapshot, folder: Path, now_s: float) -> list[Path]:
    """Write the picture, and the status object where there is one; return the files.

    Args:
        svg: The picture.
        snapshot: What the picture shows.
        folder: Folder to write to.
        now_s: Wall time; names the files.

    Raises:
        OSError: A file cannot be written.
    """
    contents = {".svg": svg.encode()}
    status = describe_snapshot(snapshot)
    if status is not None:
        contents[".json"] = encode_line(status)
    return write_export(contents, folder, now_s)


def write_export(contents: Mapping[str, bytes], folder: Path, now_s: float) -> list[Path]:
    """Write files of one name, and return them.

    Args:
        contents: What each holds, by its suffix.
        folder: Folder to write to.
        now_s: Wall time; names the files.

    Raises:
        OSError: A file cannot be written.
    """
    stem = f"vramscope-{datetime.fromtimestamp(now_s):%Y%m%d-%H%M%S}"
    return [_write_new(folder, stem, suffix, data) for suffix, data in contents.items()]


def _write_new(folder: Path, stem: str, suffix: str, data: bytes) -> Path:
    """Write a file that did not exist; a number is added where the name is taken."""
    number = 1
    while True:
        path = folder / f"{stem}{'' if number == 1 else f'-{number}'}{suffix}"
        try:
            with path.open("xb") as file:
                file.write(data)
        except FileExistsError:
            number += 1
        else:
            return path
