"""The files that a command line names, and the sandbox of a verb that reads them and does nothing else."""

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

_POSITIONAL = {
    ("import", "files"),
    ("replay", "paths"),
    ("diff", "a"),
    ("diff", "b"),
    ("export", "file"),
    ("inspect", "file"),
    ("modules", "paths"),
    ("sweep", "folders"),
    ("calibrate", "measured"),
}
# Names of parsed arguments that are files to read.
_FLAGS = (
    "input",
    "read",
    "model",
    "batch",
    "calibration",
    "cluster",
    "calibrate_time",
    "measured",
    "memory_dir",
    "log_dir",
    "config",
)


def list_inputs(arguments: Namespace) -> Iterator[tuple[str, Path]]:
    """Yield each input file of the command line, with the verb and flag that it was given to."""
    verb = arguments.verb
    for name, value in vars(arguments).items():
        if (verb, name) in _POSITIONAL:
            usage = verb
        elif name in _FLAGS:
            flag = f"--{name.replace('_', '-')}"
            usage = flag if name == "config" else f"{verb} {flag}"
        else:
            continue
        for each in value if isinstance(value, list | tuple) else (value,):
            if isinstance(each, str | Path):
                yield usage, Path(each)
                _, at, folder = str(each).partition("@")
                if name == "cluster" and at:
                    yield f"{usage} DEVICE@DIR", Path(folder)


_OUTPUTS = ("output", "figure", "archive")


def list_outputs(arguments: Namespace) -> Iterator[Path]:
    """Yield each file or folder that the command line wants written."""
    for name in _OUTPUTS:
        value = getattr(arguments, name, None)
        path = getattr(value, "path", value)  # of a `FigureTarget`
        if isinstance(path, str | Path) and str(path):
            yield Path(path)


SWITCH = "VRAMSCOPE_SANDBOX"
_OFF = ("0", "off", "no", "false")
# Screens of files, which export into the current folder.
_WITH_SCREEN = ("diff", "inspect", "modules")
# Verbs that read files of others, print or write a result, and end: whether a command line of theirs does.
_READERS: Mapping[str, Callable[[Namespace], bool]] = {
    "calibrate": lambda it: True,
    "diff": lambda it: True,
    "estimate": lambda it: it.factory is None,  # which runs code of the user
    "export": lambda it: True,
    "fragment": lambda it: it.input is not None,
    "heatmap": lambda it: it.batch is None,  # whose file names further files
    "import": lambda it: True,
    "inspect": lambda it: True,
    "leak": lambda it: it.input is not None,
    "modules": lambda it: bool(it.paths),
    "oom": lambda it: it.input is not None,
    "phases": lambda it: it.read is not None,
    "profile": lambda it: it.input is not None,
    "replay": lambda it: it.compare,
    # From its screen runs are replayed.
    "sweep": lambda it: not _opens_screen(it) or it.fail_on is not None,
}
_SQLITE_MARK = b"SQLite format 3\0"
_OF_SQLITE = ("-wal", "-shm", "-journal")


def confine_reader(arguments: Namespace) -> None:
    """Leave a verb that reads files of others nothing but these files, and what it is to write.

    Other verbs keep what they have. It cannot be undone, so the process must be the verb's own.
    """
    is_reader = _READERS.get(arguments.verb)
    if is_reader is None or not is_reader(arguments) or is_switched_off(os.environ):
        return
    from vramscope.engine.sandbox import confine

    reads = [path for _, path in list_inputs(arguments)]
    writes = [_choose_writable(path) for path in list_outputs(arguments)]
    writes += [folder for path in reads for folder in _list_folders_of_log(path)]
    if arguments.verb in _WITH_SCREEN and _opens_screen(arguments):
        writes.append(Path())
    if arguments.verb == "inspect" and arguments.file is None:
        from vramscope.engine.files.flight_record import list_flight_folders

        reads += list_flight_folders()
    if getattr(arguments, "figure", None) is not None:
        writes.append(_make_figure_cache())
    confine([*reads, *_list_settings()], writes, scratch=_make_scratch())


def is_switched_off(environ: Mapping[str, str]) -> bool:
    return environ.get(SWITCH, "").lower() in _OFF


def _choose_writable(output: Path) -> Path:
    """Return the folder of a file, which is replaced by another, or the nearest folder there is.

    A device or pipe is written to as it is.
    """
    if output.exists() and not output.is_file():
        return output
    return next((folder for folder in output.absolute().parents if folder.exists()), output.parent)


def _opens_screen(arguments: Namespace) -> bool:
    asked = (getattr(arguments, name, None) for name in ("json", "format", "figure", "output"))
    return sys.stdout.isatty() and not any(asked)


def _list_folders_of_log(path: Path) -> Iterator[Path]:
    """Yield the folder of a recording that is not finished: SQLite reads its log only where it can write."""
    recordings = path.glob("*.vscope") if path.is_dir() else [path]
    for recording in recordings:
        with suppress(OSError):
            if any(recording.with_name(recording.name + ending).exists() for ending in _OF_SQLITE):
                yield recording.parent
            else:
                with recording.open("rb") as file:
                    head = file.read(20)
                # Version 2 of the file format: it has a log. sqlite.org/fileformat.html
                if head.startswith(_SQLITE_MARK) and head[18:20] == b"\2\2":
                    yield recording.parent


def _list_settings() -> list[Path]:
    from vramscope.engine.paths import config_file
    from vramscope.engine.settings.layers import PROJECT_FILE_NAME

    chosen = os.environ.get("VRAMSCOPE_CONFIG")
    return [Path(chosen).expanduser()] if chosen else [config_file(), Path(PROJECT_FILE_NAME)]


def _make_figure_cache() -> Path:
    """Return where Matplotlib keeps its list of fonts, which takes a second to make.

    It also makes a folder for its settings, and warns if it cannot: without one it gets that of the list.
    """
    chosen = os.environ.get("MPLCONFIGDIR")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "matplotlib"
    folder = Path(chosen) if chosen else cache
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        settings = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "matplotlib"
        if not chosen and not settings.exists():
            os.environ["MPLCONFIGDIR"] = str(folder)
    return folder


def _make_scratch() -> Path:
    """Make the folder of this process's temporary files, which is removed at its end."""
    import atexit
    import shutil
    import tempfile

    folder = tempfile.mkdtemp(prefix="vramscope-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    tempfile.tempdir = folder
    os.environ["TMPDIR"] = folder
    return Path(folder)
