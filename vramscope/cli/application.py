"""Runs a command line: parses it, runs the verb or the view, returns the exit code."""

import os
from collections.abc import Sequence

from .frame.emit import guarded_streams
from .frame.errors import run_guarded
from .frame.parse import list_verbs, names_run, parse, run_verb
from .frame.sandbox import confine_reader
from .view import refuse_with_verb, show_view


def run(argv: Sequence[str], *, owns_process: bool = False) -> int:
    """Run a command line and return its exit code.

    Args:
        owns_process: Whether the process ends after it, so that it may be confined to the files it names.
    """
    with guarded_streams():
        return run_guarded(
            lambda: _dispatch(argv, owns_process=owns_process), failure_code=_choose_failure_code(argv)
        )


def _choose_failure_code(argv: Sequence[str]) -> int | None:
    """Return the code for our own failures in `run`, whose other codes are those of the job."""
    if "run" not in argv:
        return None
    from vramscope.engine.jobs.foreground import EXIT_OWN_FAILURE

    return EXIT_OWN_FAILURE if names_run(argv, list_verbs()) else None


def _dispatch(argv: Sequence[str], *, owns_process: bool) -> int:
    arguments = parse(argv)
    # Processes that this one starts get the same folder and settings from these variables.
    for name, variable in (("runtime_dir", "VRAMSCOPE_RUNTIME_DIR"), ("config", "VRAMSCOPE_CONFIG")):
        path = getattr(arguments, name, None)
        if path is not None:
            os.environ[variable] = str(path.absolute())
    if arguments.verb is None:
        return show_view(arguments)
    refuse_with_verb(arguments)
    if owns_process:
        confine_reader(arguments)
    return run_verb(arguments)
