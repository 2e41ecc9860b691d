"""The way of a file to its place: this process renames it, or asks its helper, which may enter the folder."""

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .output_helper import OutputHelper

_helper: "OutputHelper | None" = None


def write_through(helper: "OutputHelper") -> None:
    """Let a helper put every file in place from now on, as this process is about to be confined."""
    global _helper  # noqa: PLW0603 - as the confinement is the process's own
    _helper = helper


def name_draft() -> str:
    """Return a name that nobody can guess."""
    return f".vramscope-{os.urandom(8).hex()}.part"


@contextmanager
def replacing_by_helper(path: Path, mode: int) -> Iterator[tuple[Path, int]]:
    """Yield where to put a file, and its mode; a helper then moves it to `path`, its own place without one.

    Args:
        mode: Of a file that did not exist before.
    """
    near = None if _helper is None else _helper.choose_draft(path, name_draft())
    if _helper is None or near is None:
        yield path, mode
        return
    with suppress(FileNotFoundError):
        before = path.lstat().st_mode
        mode = before & 0o777 if stat.S_ISREG(before) else mode
    yield near, mode
    try:
        _helper.replace(near, path)
    finally:
        near.unlink(missing_ok=True)


@contextmanager
def adding_by_helper(path: Path) -> Iterator[Path]:
    """Yield where to put a file that must not exist yet; a helper then moves it to `path`.

    Raises:
        FileExistsError: It exists.
    """
    near = None if _helper is None else _helper.choose_draft(path, name_draft())
    if _helper is None or near is None:
        yield path
        return
    yield near
    try:
        _helper.add(near, path)
    finally:
        near.unlink(missing_ok=True)


def make_folder(folder: Path, *, parents: bool = False, exist_ok: bool = False) -> None:
    """Make a folder for output.

    Raises:
        OSError: It cannot be made, or exists where that is not fine.
    """
    if _helper is None or _helper.choose_draft(folder / "any", "any") is None:
        folder.mkdir(parents=parents, exist_ok=exist_ok)
    elif not (exist_ok and folder.is_dir()):
        _helper.make_folder(folder, parents=parents)


def save_by_helper(values: Mapping[str, object]) -> Path | None:
    """Let the helper save settings, and return their file; None without a helper.

    Raises:
        OutputFileError: The helper refuses them, or the file cannot be written.
        OSError: The helper does not answer.
    """
    return None if _helper is None else _helper.save_settings(values)
