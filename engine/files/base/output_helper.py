"""The process that puts files in place for one that may not enter their folders.

A process that reads files of others writes drafts into folders that are made for them, where there is nothing
else. Its helper, forked before it is confined, moves drafts to the outputs of the command line, and refuses
every other path: whoever takes the reader over gets no more out of it.
"""

import errno
import os
import shutil
import signal
import stat
import struct
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from ...errors import OutputFileError, VramscopeError
from .output_route import name_draft

# Endings of all that is written into folders.
_ENDINGS = (".csv", ".html", ".json", ".pdf", ".png", ".svg", ".txt")
# One more in folders that the helper has made, where it replaces nobody's: for a training framework.
_ENDINGS_OF_EXPORTS = (*_ENDINGS, ".toml")
# Files of a screen are named so, with the time.
_EXPORT_PREFIX = "vramscope-"
_LENGTH = struct.Struct("=I")
# A number of an error, 0 for none or `_REFUSED`, and how many bytes of text follow.
_ANSWER = struct.Struct("=iI")
_REFUSED = -1
_MOST_REQUEST_BYTES = 1 << 15
_ENDS_WITH_ITS_USER = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

OutputKind = Literal["file", "files", "folder", "exports"]
_Action = Literal["replace", "add", "make", "make all", "save", "end"]
# Writes settings by name and returns their file.
_SaveSettings = Callable[[Mapping[str, object]], Path]


class Output(NamedTuple):
    """What a command line wants written.

    Args:
        kind: A file; files of this name with endings; a folder, and folders in it; or the folder of a screen,
            which gets new files and new folders of files.
    """

    path: Path
    kind: OutputKind

    @property
    def folder(self) -> Path:
        """The folder that its files get into."""
        return self.path.parent if self.kind in ("file", "files") else self.path

    def allows_file(self, target: Path) -> bool:
        """Whether a file may get this name, and replace another there."""
        if self.kind == "file":
            return target == self.path
        if not target.name.endswith(_ENDINGS):
            return False
        if self.kind == "files":
            return target.parent == self.path.parent and target.name.startswith(f"{self.path.name}.")
        parts = _list_below(self.path, target)
        return self.kind == "folder" and 1 <= len(parts) <= 2 and not any(it.startswith(".") for it in parts)

    def allows_folder(self, target: Path) -> bool:
        """Whether a folder may be made."""
        if self.kind == "files":
            return target == self.path.parent
        if self.kind == "folder":
            parts = _list_below(self.path, target)
            return target == self.path or (len(parts) == 1 and not parts[0].startswith("."))
        return self.kind == "exports" and self._is_export(target)

    def allows_new_file(self, target: Path) -> bool:
        """Whether a file may get this name where there is none yet."""
        return self.kind == "exports" and self._is_export(target) and target.name.endswith(_ENDINGS)

    def _is_export(self, target: Path) -> bool:
        return target.parent == self.path and target.name.startswith(_EXPORT_PREFIX)


def _list_below(folder: Path, target: Path) -> tuple[str, ...]:
    return target.relative_to(folder).parts if target.is_relative_to(folder) else ()


class OutputHelper:
    """The way to the helper.

    Args:
        outputs: What may be written.
        scratch: Folder of temporary files, which the helper removes at the end. Drafts of exports are in it.
        save_settings: Called in the helper with values that nobody has checked; None where nothing is saved.
    """

    def __init__(
        self, outputs: Iterable[Output], scratch: Path, *, save_settings: _SaveSettings | None = None
    ) -> None:
        self._outputs = [Output(it.path.absolute(), it.kind) for it in outputs]
        self._scratch = scratch
        self._lock = threading.Lock()
        # Where the drafts of a folder's files are, or the number of the error why they can be nowhere.
        self._drafts: dict[Path, Path | int] = {}
        for output in self._outputs:
            if output.folder not in self._drafts:
                self._drafts[output.folder] = (
                    scratch if output.kind == "exports" else _make_draft_folder(output)
                )
        self._owner = os.getpid()
        asked, self._to = os.pipe()
        self._answers, answering = os.pipe()
        self._helper = os.fork()
        if self._helper == 0:
            try:
                _Helper(self._outputs, self.draft_folders, scratch, save_settings).serve(asked, answering)
            finally:
                os._exit(0)
        os.close(asked)
        os.close(answering)

    @property
    def draft_folders(self) -> list[Path]:
        return [it for it in self._drafts.values() if isinstance(it, Path)]

    def choose_draft(self, target: Path, name: str) -> Path | None:
        """Return the path of a draft; None where none of the outputs is.

        Raises:
            OSError: Nothing can be written in the folder of the output.
        """
        for folder in target.absolute().parents:
            found = self._drafts.get(folder)
            if isinstance(found, int):
                raise OSError(found, os.strerror(found), str(target))
            if found is not None:
                return found / name
        return None

    def replace(self, draft: Path, target: Path) -> None:
        """Give a draft its name, which another file may have."""
        self._ask("replace", target, draft)

    def add(self, draft: Path, target: Path) -> None:
        """Give a draft its name, which no file has.

        Raises:
            FileExistsError: One has it.
        """
        self._ask("add", target, draft)

    def make_folder(self, target: Path, *, parents: bool) -> None:
        self._ask("make all" if parents else "make", target)

    def save_settings(self, values: Mapping[str, object]) -> Path:
        """Save settings in the file of the command line, and return it.

        Raises:
            OutputFileError: They are none that may be saved from here, or the file cannot be written.
        """
        return Path(self._ask("save", Path(), msgspec.json.encode(values).decode()))

    def end(self) -> None:
        """End the helper, which removes what is left of drafts and temporary files; a fork ends nothing."""
        if os.getpid() != self._owner:
            return
        with suppress(OSError):
            self._ask("end", self._scratch)
        with suppress(OSError):
            os.waitpid(self._helper, 0)

    def _ask(self, action: _Action, target: Path, more: Path | str = "") -> str:
        words = (action, os.fspath(target.absolute()), os.fspath(more))
        request = b"\0".join(map(os.fsencode, words))
        if len(request) > _MOST_REQUEST_BYTES:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), str(target))
        with self._lock:
            with suppress(BrokenPipeError):  # for callers it would mean that nobody reads our output
                os.write(self._to, _LENGTH.pack(len(request)) + request)
            answer = _read_exactly(self._answers, _ANSWER.size)
            number, length = _ANSWER.unpack(answer) if answer else (errno.EIO, 0)
            text = os.fsdecode(_read_exactly(self._answers, length))
        if number == _REFUSED:
            raise OutputFileError(text)
        if number:
            raise OSError(number, os.strerror(number), str(target))
        return text


class _Helper:
    """What the helper does, which trusts nobody who asks."""

    def __init__(
        self,
        outputs: list[Output],
        draft_folders: list[Path],
        scratch: Path,
        save_settings: _SaveSettings | None,
    ) -> None:
        self._outputs = outputs
        self._draft_folders = draft_folders
        self._scratch = scratch
        self._save_settings = save_settings
        # Exports: folders, which had no files of others, and files.
        self._made: set[Path] = set()

    def serve(self, asked: int, answering: int) -> None:
        """Answer until the end is asked for, or nobody is left to ask."""
        for number in _ENDS_WITH_ITS_USER:
            signal.signal(number, signal.SIG_IGN)
        _close_all_but(asked, answering)
        try:
            is_asked = True
            while is_asked:
                request = _read_request(asked)
                is_asked = request is not None and request[0] != "end"
                if request is not None and is_asked:
                    status, text = self._try(*request)
                    os.write(answering, _ANSWER.pack(status, len(text)) + text)
        finally:
            for folder in (*self._draft_folders, self._scratch):
                shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):
                os.write(answering, _ANSWER.pack(0, 0))

    def _try(self, action: str, target: Path, more: str) -> tuple[int, bytes]:
        """Do it, and return the number of an error or 0, and a text."""
        try:
            if action == "save" and self._save_settings is not None:
                return 0, os.fsencode(self._save_settings(msgspec.json.decode(more, type=dict[str, object])))
            self._do(action, target, Path(more))
        except (VramscopeError, msgspec.MsgspecError) as error:
            return _REFUSED, os.fsencode(str(error))
        except OSError as error:
            return error.errno or errno.EIO, b""
        return 0, b""

    def _do(self, action: str, target: Path, draft: Path) -> None:
        if action in ("make", "make all"):
            kinds = {it.kind for it in self._outputs if it.allows_folder(target)}
            if kinds:
                target.mkdir(parents=action == "make all")
                if "exports" in kinds:
                    self._made.add(target)
                return
        if action == "replace" and self._may_replace(target):
            self._move(draft, target, is_new=False)
            return
        # What a screen exports replaces only what it has exported.
        if action in ("add", "replace") and any(it.allows_new_file(target) for it in self._outputs):
            self._move(draft, target, is_new=True)
            self._made.add(target)
            return
        raise PermissionError(errno.EACCES, "not an output of the command line")

    def _may_replace(self, target: Path) -> bool:
        is_of_export = target in self._made or target.parent in self._made
        is_export = is_of_export and target.name.endswith(_ENDINGS_OF_EXPORTS)
        return is_export or any(it.allows_file(target) for it in self._outputs)

    def _move(self, draft: Path, target: Path, *, is_new: bool) -> None:
        if draft.parent not in self._draft_folders or not stat.S_ISREG(draft.lstat().st_mode):
            raise PermissionError(errno.EACCES, "not a draft")
        if is_new:
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        try:
            try:
                draft.replace(target)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                _copy(draft, target)
        except OSError:
            if is_new:
                target.unlink()
            raise


def _copy(draft: Path, target: Path) -> None:
    """Replace a file on another file system than the draft's."""
    near = target.with_name(name_draft())
    source = os.open(draft, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(source, "rb") as reader:
        made = os.open(near, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(made, "wb") as writer:
                os.fchmod(made, os.fstat(source).st_mode & 0o777)
                shutil.copyfileobj(reader, writer)
            near.replace(target)
        except OSError:
            near.unlink()
            raise


def _make_draft_folder(output: Output) -> Path | int:
    """Make a folder for drafts where the output gets, or in the nearest folder there is of a missing one."""
    near = output.folder
    try:
        if output.kind != "file":
            near = next((it for it in (near, *near.parents) if it.exists()), near)
        made = near / name_draft()
        made.mkdir(mode=0o700)
    except OSError as error:
        return error.errno or errno.EIO
    return made


def _close_all_but(*kept: int) -> None:
    """Keep no file of the reader, nor its terminal: a reader's end would not be seen by those who wait."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    for entry in os.listdir("/proc/self/fd"):  # noqa: PTH208 - as numbers
        if int(entry) > 2 and int(entry) not in kept:
            with suppress(OSError):
                os.close(int(entry))


def _read_request(asked: int) -> tuple[str, Path, str] | None:
    """Read a request; None at the end, or where it is none that `OutputHelper` sends."""
    head = _read_exactly(asked, _LENGTH.size)
    if not head or _LENGTH.unpack(head)[0] > _MOST_REQUEST_BYTES:
        return None
    words = _read_exactly(asked, _LENGTH.unpack(head)[0]).split(b"\0")
    if len(words) != 3:
        return None
    action, target, more = map(os.fsdecode, words)
    return action, Path(target), more


def _read_exactly(descriptor: int, size: int) -> bytes:
    """Read so many bytes; none where the other side has ended."""
    data = b""
    while len(data) < size:
        more = os.read(descriptor, size - len(data))
        if not more:
            return b""
        data += more
    return data
