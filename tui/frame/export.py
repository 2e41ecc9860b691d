"""Exporting a view: pictures, numbers and reports, into files of one name or a new folder."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...engine.files.base.output_file import write_new
from ...engine.files.base.output_route import make_folder
from ...engine.viewer.snapshot import Snapshot
from ...exporters.json_lines import encode_line
from ...exporters.status.document import describe_snapshot

if TYPE_CHECKING:
    from textual.app import App


def make_new_folder(folder: Path, name: str) -> Path:
    """Make a folder that did not exist; a number is added if the name exists."""
    number = 1
    while True:
        made = folder / f"{name}{'' if number == 1 else f'-{number}'}"
        try:
            make_folder(made)
        except FileExistsError:
            number += 1
        else:
            return made


def describe_written(files: Sequence[Path]) -> str:
    """Return a sentence about files of one folder, which may not be listed by a process that is confined."""
    return f"Wrote {', '.join(sorted(path.name for path in files))} to {files[0].parent}"


def list_view(svg: str, snapshot: Snapshot) -> dict[str, bytes]:
    """Return the picture, and the status object where there is one, by the suffixes of their files."""
    contents = {".svg": svg.encode()}
    status = describe_snapshot(snapshot)
    if status is not None:
        contents[".json"] = encode_line(status)
    return contents


def export_and_notify(
    app: "App[Any]", contents: Mapping[str, bytes], folder: Path | None, now_s: float
) -> None:
    """Write files of one name (contents by suffix), and notify the user where they are or why they are not.

    The folder None is the current one; the wall time `now_s` names the files.
    """
    folder = folder or Path.cwd()
    try:
        files = write_export(contents, folder, now_s)
    except OSError as error:
        app.notify(f"Not exported: {folder}: {error.strerror}", severity="error")
        return
    names = [path.name for path in files]
    listed = " and ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else names[0]
    app.notify(f"Wrote {listed} to {folder}")


def write_export(contents: Mapping[str, bytes], folder: Path, now_s: float) -> list[Path]:
    """Write files of one name, by suffix, and return their paths; the wall time `now_s` names them.

    Raises:
        OSError: A file cannot be written.
    """
    stem = f"vramscope-{datetime.fromtimestamp(now_s):%Y%m%d-%H%M%S}"
    return [_write_new(folder, stem, suffix, data) for suffix, data in contents.items()]


def _write_new(folder: Path, stem: str, suffix: str, data: bytes) -> Path:
    """Write a file that did not exist; a number is added if the name exists."""
    number = 1
    while True:
        path = folder / f"{stem}{'' if number == 1 else f'-{number}'}{suffix}"
        try:
            write_new(data, path)
        except FileExistsError:
            number += 1
        else:
            return path
