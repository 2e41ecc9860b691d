"""The process that puts outputs in place: what it does, refuses, says of trouble, and leaves behind."""

import errno
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from tests import REPOSITORY
from vramscope.engine.errors import OutputFileError
from vramscope.engine.files.base import output_route
from vramscope.engine.files.base.output_file import (
    place_output,
    write_files,
    write_new,
    write_whole,
)
from vramscope.engine.files.base.output_helper import Output, OutputHelper, OutputKind
from vramscope.engine.files.base.output_route import make_folder


@pytest.fixture
def helping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., OutputHelper]:
    """Return what starts a helper for outputs in `tmp_path / "here"`, by path below it and kind."""
    here, scratch = tmp_path / "here", tmp_path / "scratch"
    here.mkdir()

    def start(**outputs: str) -> OutputHelper:
        scratch.mkdir()
        helper = OutputHelper(
            [Output(here / path, cast("OutputKind", kind)) for kind, path in outputs.items()], scratch
        )
        monkeypatch.setattr(output_route, "_helper", helper)
        return helper

    return start


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return tmp_path / "here"


@contextmanager
def refused(number: int = errno.EACCES) -> Iterator[None]:
    with pytest.raises(OSError, match=re.escape(os.strerror(number))):
        yield


def test_a_file_is_replaced_with_its_mode_and_nothing_is_left(
    helping: Callable[..., OutputHelper], here: Path, tmp_path: Path
) -> None:
    (here / "out.csv").write_text("old")
    (here / "out.csv").chmod(0o640)
    helper = helping(file="out.csv")
    write_whole(b"new", here / "out.csv")
    assert (here / "out.csv").read_bytes() == b"new"
    assert (here / "out.csv").stat().st_mode & 0o777 == 0o640
    with pytest.raises(OutputFileError, match=r"other\.csv: cannot be written: Permission denied"):
        write_whole(b"new", here / "other.csv")
    helper.end()
    assert [it.name for it in here.iterdir()] == ["out.csv"]
    assert not (tmp_path / "scratch").exists()


def test_a_database_is_made_next_to_its_place(helping: Callable[..., OutputHelper], here: Path) -> None:
    helper = helping(file="run.vscope")
    with place_output(here / "run.vscope") as draft:
        assert draft.parent.parent == here
        assert draft.parent.stat().st_mode & 0o777 == 0o700
        draft.write_bytes(b"data")
        draft.with_name(f"{draft.name}-wal").write_bytes(b"log")
    helper.end()
    assert [(it.name, it.read_bytes()) for it in here.iterdir()] == [("run.vscope", b"data")]


def test_a_folder_gets_files_and_folders_of_files(helping: Callable[..., OutputHelper], here: Path) -> None:
    helper = helping(folder="new/plots")
    write_files({"a.svg": b"a"}, here / "new/plots")
    write_files({"b.csv": b"b"}, here / "new/plots/rank 0")
    for name in (".bashrc", "run.sh", ".svg", "../c.svg", "rank 0/.hidden/d.svg", "..svg"):
        with refused():
            helper.replace(here / "none", here / "new/plots" / name)
    with refused():
        make_folder(here / "new/plots/.ssh")
    helper.end()
    found = {str(it.relative_to(here)) for it in here.rglob("*") if it.is_file()}
    assert found == {"new/plots/a.svg", "new/plots/rank 0/b.csv"}


def test_files_of_one_name_get_its_endings_only(helping: Callable[..., OutputHelper], here: Path) -> None:
    helper = helping(files="heat/sweep")
    make_folder(here / "heat")
    for name in ("sweep.png", "sweep.alt.txt"):
        write_whole(b"", here / "heat" / name)
    for name in ("other.png", "sweep", "sweep.sh"):
        with pytest.raises(OutputFileError):
            write_whole(b"", here / "heat" / name)
    helper.end()
    assert {it.name for it in (here / "heat").iterdir()} == {"sweep.png", "sweep.alt.txt"}


def test_a_screen_exports_what_is_new_and_replaces_only_that(
    helping: Callable[..., OutputHelper], here: Path
) -> None:
    (here / "vramscope-1.svg").write_text("mine")
    (here / "vramscope-old").mkdir()
    helper = helping(exports="")
    with pytest.raises(FileExistsError):
        write_new(b"ours", here / "vramscope-1.svg")
    write_new(b"ours", here / "vramscope-2.svg")
    make_folder(here / "vramscope-new")
    write_files({"a.txt": b"a", "b.toml": b"b"}, here / "vramscope-new")
    for content in (b"first", b"again"):
        write_whole(content, here / "vramscope-3.svg")
    for target in ("vramscope-1.svg", "vramscope-old/a.txt", "vramscope-new/.a"):
        with pytest.raises(OutputFileError):
            write_whole(b"ours", here / target)
    with refused():
        write_new(b"ours", here / "notes.svg")
    helper.end()
    contents = {str(it.relative_to(here)): it.read_bytes() for it in here.rglob("*") if it.is_file()}
    assert contents == {
        "vramscope-1.svg": b"mine",
        "vramscope-2.svg": b"ours",
        "vramscope-3.svg": b"again",
        "vramscope-new/a.txt": b"a",
        "vramscope-new/b.toml": b"b",
    }


def test_settings_are_saved_by_the_helper_as_far_as_it_likes(
    tmp_path: Path,
) -> None:
    def save(values: Mapping[str, object]) -> Path:
        if "theme" not in values:
            raise OutputFileError(f"not saved: {', '.join(values)}")
        (tmp_path / "saved").write_text(str(values["theme"]))
        return tmp_path / "saved"

    for number, way in enumerate((save, None)):
        (tmp_path / str(number)).mkdir()
        helper = OutputHelper([], tmp_path / str(number), save_settings=way)
        if way is None:
            with refused():
                helper.save_settings({"theme": "light"})
        else:
            assert helper.save_settings({"theme": "mono"}).read_text() == "mono"
            with pytest.raises(OutputFileError, match="not saved: alerts"):
                helper.save_settings({"alerts": 1})
        helper.end()


def test_only_drafts_are_moved(helping: Callable[..., OutputHelper], here: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("key")
    helper = helping(file="out.csv")
    with refused():
        helper.replace(tmp_path / "secret", here / "out.csv")
    [drafts] = helper.draft_folders
    (drafts / "link").symlink_to(tmp_path / "secret")
    with refused():
        helper.replace(drafts / "link", here / "out.csv")
    with refused():
        helper.replace(drafts / ".." / ".." / "secret", here / "out.csv")
    helper.end()
    assert (tmp_path / "secret").read_text() == "key"
    assert list(here.iterdir()) == []


def test_a_draft_on_another_disk_is_copied(
    helping: Callable[..., OutputHelper], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.replace

    def refuse_other_disk(path: Path, target: Path) -> Path:
        if path.parent != Path(target).parent:
            raise OSError(errno.EXDEV, "another disk")
        return rename(path, target)

    monkeypatch.setattr(Path, "replace", refuse_other_disk)
    helper = helping(file="out.csv")
    write_whole(b"new", here / "out.csv")
    helper.end()
    assert [(it.name, it.read_bytes()) for it in here.iterdir()] == [("out.csv", b"new")]


def test_what_the_disk_says_is_said_as_ever(helping: Callable[..., OutputHelper], here: Path) -> None:
    helper = helping(file="missing/out.csv", folder="plots")
    with pytest.raises(
        OutputFileError, match=r"missing/out\.csv: cannot be written: No such file or directory"
    ):
        write_whole(b"", here / "missing/out.csv")
    (here / "plots/a.svg").mkdir(parents=True)
    with pytest.raises(OutputFileError, match=r"a\.svg: cannot be written: Is a directory"):
        write_whole(b"", here / "plots/a.svg")
    helper.end()


READER = """
import sys
from pathlib import Path
from vramscope.engine.files.base.output_file import write_whole
from vramscope.engine.files.base.output_route import write_through
from vramscope.engine.files.base.output_helper import Output, OutputHelper
output, scratch = map(Path, sys.argv[1:])
helper = OutputHelper([Output(output, "file")], scratch)
write_through(helper)
print(helper._helper, flush=True)
sys.stdin.readline()
write_whole(b"new", output)
(helper.draft_folders[0] / "rest").write_bytes(b"")
print("written", flush=True)
sys.stdin.readline()
"""


def test_it_outlives_signals_and_ends_with_its_reader(tmp_path: Path) -> None:
    here, scratch = tmp_path / "here", tmp_path / "scratch"
    here.mkdir()
    scratch.mkdir()
    words = [sys.executable, "-c", READER, str(here / "out.csv"), str(scratch)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    ) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        pid = int(reader.stdout.readline())
        ended = os.pidfd_open(pid)
        reader.stdin.write("go on\n")
        reader.stdin.flush()
        assert reader.stdout.readline() == "written\n"
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
        reader.kill()
    assert select.select([ended], [], [], 30)[0]
    os.close(ended)
    assert [(it.name, it.read_bytes()) for it in here.iterdir()] == [("out.csv", b"new")]
    assert not scratch.exists()
