"""What is said of a file that a verb does not read: what it is, and which verb does."""

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from vramscope.engine.errors import InputFileError
from vramscope.engine.files.base.input_file import show_path

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
"""Arguments of verbs that name a file to read, by their place in what was parsed."""


def name_the_file(error: InputFileError, arguments: Namespace) -> InputFileError:
    """Return the error as it is, or another where the file that it is about is one for other verbs."""
    text = str(error)
    for usage, path in _list_inputs(arguments):
        if not text.startswith((f"{show_path(path)}:", f"{show_path(path)}, ")) or not path.exists():
            continue
        from vramscope.engine.files.detect import identify

        kind = identify(path)
        if kind is not None and not kind.is_read_by(usage):
            return InputFileError(f"{show_path(path)}: {kind.explain(usage)}")
    return error


def _list_inputs(arguments: Namespace) -> Iterator[tuple[str, Path]]:
    """Yield each file that the words name, with the verb and the flag that take it."""
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
