"""The files that a command line names for reading."""

import os
from argparse import Namespace
from collections.abc import Iterator
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
        # The old `export --figure FILE -o DIR` has the recording there.
        given = arguments.figure if (verb, value) == ("export", None) and name == "file" else value
        for each in given if isinstance(given, list | tuple) else (given,):
            if isinstance(each, str | Path) and str(each):
                # `sweep` reads `~` as a shell does.
                path = Path(os.path.expanduser(each) if name == "folders" else each)  # noqa: PTH111 - never fails
                yield usage, path
                _, at, folder = str(each).partition("@")
                if name == "cluster" and at:
                    yield f"{usage} DEVICE@DIR", Path(folder)
