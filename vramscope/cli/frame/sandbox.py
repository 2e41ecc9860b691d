"""The sandbox of a verb that reads files of others and does nothing else."""

import atexit
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from vramscope.engine.errors import UsageError

from .files import list_inputs
from .flags import FigureTarget, read_figure, read_old_figure

if TYPE_CHECKING:
    from vramscope.engine.files.base.output_helper import Output

# Verbs whose old `--output` is the name of several files, without their endings.
_SPREADING = ("heatmap", "sweep")


def list_outputs(arguments: Namespace) -> "Iterator[Output]":
    """Yield each file or folder that the command line wants written, but for standard output."""
    from vramscope.engine.files.base.output_file import STANDARD_OUTPUT
    from vramscope.engine.files.base.output_helper import Output

    output: Path | None = getattr(arguments, "output", None)
    graph: FigureTarget | None = getattr(arguments, "graph_figure", None)
    archive: Path | None = getattr(arguments, "archive", None)
    figure: FigureTarget | str | None = getattr(arguments, "figure", None)
    if isinstance(figure, str):  # of `export`, whose `--figure -o DIR` is an old spelling
        with suppress(UsageError):  # the verb says what is wrong
            figure = read_figure(figure) if output is None else read_old_figure(str(output))
    elif output is not None and arguments.verb in _SPREADING:
        from vramscope.exporters.sweep.page import choose_base

        yield Output(choose_base(output), "files")
    elif output is not None and arguments.verb == "plan":
        yield Output(output, "folder")
        yield Output(output / "torchtitan.toml", "file")
    elif output is not None and output != STANDARD_OUTPUT:
        yield Output(output, "file")
    for target in (figure, graph):
        if isinstance(target, FigureTarget):
            yield Output(target.path, "folder" if target.is_folder else "file")
    if archive is not None:
        yield Output(archive, "folder")
    if getattr(arguments, "has_plots", False):
        yield Output(archive or (Path() if output is None else output.parent), "folder")
    if arguments.verb in _WITH_SCREEN and _opens_screen(arguments):
        yield Output(Path(), "exports")


SWITCH = "VRAMSCOPE_SANDBOX"
_OFF = ("0", "off", "no", "false")
# Screens of files, which export into the current folder.
_WITH_SCREEN = ("diff", "inspect", "modules", "plan", "replay", "sweep")
# Those that draw figures.
_DRAWING = ("modules", "replay", "sweep")
# Those that save settings.
_SAVING = ("replay", "sweep")
# Verbs that read files of others and show, print or write a result: whether a command line of theirs does.
_READERS: Mapping[str, Callable[[Namespace], bool]] = {
    "calibrate": lambda it: True,
    "diff": lambda it: True,
    "estimate": lambda it: it.factory is None,  # which runs code of the user
    "export": lambda it: True,
    "fragment": lambda it: it.input is not None,
    "heatmap": lambda it: True,
    "import": lambda it: True,
    "inspect": lambda it: True,
    "leak": lambda it: it.input is not None,
    "modules": lambda it: bool(it.paths),
    "oom": lambda it: it.input is not None,
    "phases": lambda it: it.read is not None,
    # Code of the user, the driver, and the agent.
    "plan": lambda it: it.factory is None and it.cluster != "local" and it.measured != "live",
    "profile": lambda it: it.input is not None,
    "replay": lambda it: True,
    "sweep": lambda it: True,
}
# What a screen saves for next time. Others of the user's own settings name programs to run.
_SAVED = frozenset({"theme", "sort", "sort_reversed", "columns", "tree"})
_FONTS_WITHIN_S = 60.0
_OF_SQLITE = ("-wal", "-shm", "-journal")


def confine_reader(arguments: Namespace) -> None:
    """Leave a verb that reads files of others nothing but these files, and what it is to write.

    Other verbs keep what they have. It cannot be undone, so the process must be the verb's own.
    """
    is_reader = _READERS.get(arguments.verb)
    if is_reader is None or not is_reader(arguments) or is_switched_off(os.environ):
        return
    from vramscope.engine.files.base.output_helper import Output, OutputHelper
    from vramscope.engine.files.base.output_route import write_through
    from vramscope.engine.sandbox import confine

    scratch = _make_scratch()
    reads = [path for _, path in list_inputs(arguments)]
    outputs = list(list_outputs(arguments))
    named = _list_named(arguments, scratch)
    outputs += [Output(path, "files") for use, path in named if use == "files"]
    # A device or pipe is written to as it is.
    writes = [it.path for it in outputs if it.path.exists() and not (it.path.is_file() or it.path.is_dir())]
    writes += [file for path in reads for file in _list_files_of_log(path)]
    reads += [path for use, path in named if use == "read"]
    if arguments.verb == "inspect" and arguments.file is None:
        from vramscope.engine.files.flight_record import list_flight_folders

        reads += list_flight_folders()
    is_drawing = any(getattr(arguments, name, None) for name in ("figure", "graph_figure", "has_plots"))
    is_drawing |= arguments.verb == "heatmap" and arguments.batch is not None
    if is_drawing or arguments.verb in _DRAWING:
        _copy_fonts(scratch, makes=is_drawing)
    saves = arguments.verb in _SAVING and _opens_screen(arguments)
    save = partial(_save_look, path=getattr(arguments, "config", None)) if saves else None
    helper = OutputHelper(outputs, scratch, save_settings=save)
    atexit.register(helper.end)
    write_through(helper)
    confine([*reads, *_list_settings()], [*writes, *helper.draft_folders], scratch=scratch)


def refuse_others(paths: Iterable[Path], instead: str) -> None:
    """Refuse inputs that this process may not open, since it is confined to those that it was started with.

    Args:
        instead: The command that reads them.
    """
    for path in paths:
        if _is_withheld(os.path.expanduser(path)):  # noqa: PTH111 - raises nothing
            from vramscope.engine.files.base.input_file import show_path

            raise UsageError(
                f"{show_path(path)}: this view opens only the files that it was started with; run "
                f"`{instead}` in another shell, or start the view with {SWITCH}=off"
            )


def _is_withheld(path: str) -> bool:
    """Whether the mode of a file lets this process read it, and its confinement does not."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except PermissionError:
        return os.access(path, os.R_OK)
    except OSError:
        return False
    return False


def is_switched_off(environ: Mapping[str, str]) -> bool:
    return environ.get(SWITCH, "").lower() in _OFF


_Named = tuple[Literal["read", "files"], Path]


def _list_named(arguments: Namespace, scratch: Path) -> list[_Named]:
    """Return what the file of a command line names itself: inputs, and outputs without their endings.

    It is read in a fork, which is confined to that file. Nothing is returned of a file that cannot be
    read: the verb says why.
    """
    name, read = _NAMING.get(arguments.verb, ("", _read_batch))
    file = Path(getattr(arguments, name, None) or "")
    if not file.is_file():
        return []
    from vramscope.engine.sandbox import confine

    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            confine([file], [], scratch=scratch)
            data = b"\0".join(os.fsencode(f"{use} {path}") for use, path in read(file))
            if len(data) <= _MOST_NAMED_BYTES:
                os.write(writing, data)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        entries = stream.read(_MOST_NAMED_BYTES).split(b"\0")
    os.waitpid(child, 0)
    found = (os.fsdecode(entry).partition(" ") for entry in entries if entry)
    return [("read" if use == "read" else "files", Path(path)) for use, _, path in found]


def _read_batch(file: Path) -> Iterator[_Named]:
    from ..sweeps import read_batch

    job = read_batch(file)
    yield "read", job.memory_dir
    if job.log_dir is not None:
        yield "read", job.log_dir
    for variant in job.variants:
        yield "files", variant.base


def _read_cluster(file: Path) -> Iterator[_Named]:
    from vramscope.engine.files.cluster_file import read_cluster_file

    folder = read_cluster_file(file)[0].galvatron
    if folder is not None:
        yield "read", file.parent / folder


# Arguments whose files name further files, by verb, and what reads them.
_NAMING: Mapping[str, tuple[str, Callable[[Path], Iterator[_Named]]]] = {
    "heatmap": ("batch", _read_batch),
    "plan": ("cluster", _read_cluster),
}
# What fits into a pipe at once.
_MOST_NAMED_BYTES = 1 << 15


def _opens_screen(arguments: Namespace) -> bool:
    without = ["json", "format", "figure", "output"] + ["fail_on"] * (arguments.verb == "sweep")
    is_asked = getattr(arguments, "screen", True)
    return is_asked and sys.stdout.isatty() and not any(getattr(arguments, name, None) for name in without)


def _list_files_of_log(path: Path) -> Iterator[Path]:
    """Yield what SQLite writes to read a recording without its end: memory that is shared with its writer.

    A journal, which a killed writer left on a network file system, is undone in the recording itself.
    """
    from vramscope.engine.files.base.output_file import write_new

    for recording in path.glob("*.vscope") if path.is_dir() else [path]:
        with suppress(OSError):
            place = recording.resolve(strict=True)
            log, shared, journal = (place.with_name(place.name + ending) for ending in _OF_SQLITE)
            if log.exists():
                # SQLite would make it, and may not make files in this folder.
                with suppress(FileExistsError):
                    write_new(b"", shared)
            present = [it for it in (log, shared, journal) if it.is_file() and not it.is_symlink()]
            yield from present
            if journal in present:
                yield place


def _list_settings() -> list[Path]:
    from vramscope.engine.paths import config_file
    from vramscope.engine.settings.layers import PROJECT_FILE_NAME

    chosen = os.environ.get("VRAMSCOPE_CONFIG")
    return [Path(chosen).expanduser()] if chosen else [config_file(), Path(PROJECT_FILE_NAME)]


def _save_look(values: Mapping[str, object], *, path: Path | None) -> Path:
    """Save settings for a process that may be in the hands of somebody else by now."""
    from vramscope.engine.settings import save_settings

    if not _SAVED.issuperset(values):
        raise UsageError(f"a view saves only {', '.join(sorted(_SAVED))}")
    return save_settings(values, path=path)


def _copy_fonts(scratch: Path, *, makes: bool) -> None:
    """Give Matplotlib a folder of its own in `scratch`, with its list of fonts, which takes a second to make.

    Its folders at home have its settings too, which could name code to load.

    Args:
        makes: Make the list at home where it is missing; else the figure makes it in `scratch`.
    """
    import shutil
    import subprocess

    from vramscope.engine.child_processes import own_environment

    chosen = os.environ.get("MPLCONFIGDIR")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "matplotlib"
    name = _name_font_list()
    known = (Path(chosen) if chosen else cache) / name
    if makes and name and not known.exists():
        # Before this process is confined, and in another one: Matplotlib starts threads.
        words = [sys.executable, "-P", "-c", "import matplotlib.font_manager"]
        with suppress(subprocess.TimeoutExpired, OSError):
            subprocess.run(
                words,
                env=own_environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_FONTS_WITHIN_S,
                check=False,
            )
    own = scratch / "matplotlib"
    own.mkdir()
    os.environ["MPLCONFIGDIR"] = str(own)
    with suppress(OSError):
        shutil.copyfile(known, own / name)


def _name_font_list() -> str:
    """Return the name of the list of the installed version, without loading it; empty where there is none."""
    import re
    from importlib.util import find_spec

    found = find_spec("matplotlib")
    if found is None or found.origin is None:
        return ""
    source = Path(found.origin).with_name("font_manager.py").read_text(encoding="utf-8")
    version = re.search(r"^ +__version__ = ['\"]?([\w.]+)", source, re.MULTILINE)
    return "" if version is None else f"fontlist-v{version[1]}.json"


def _make_scratch() -> Path:
    """Make the folder of this process's temporary files, which the helper removes at its end."""
    import tempfile

    folder = tempfile.mkdtemp(prefix="vramscope-")
    tempfile.tempdir = folder
    os.environ["TMPDIR"] = folder
    return Path(folder)
