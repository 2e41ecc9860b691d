"""From the words of a command line to the verb that does it."""

import os
from argparse import Namespace
from collections.abc import Sequence

from vramscope.engine.errors import UsageError

from .frame.diagnostics import run_guarded
from .frame.printing import guarded_streams
from .node_flags import is_remote
from .prometheus_flags import check_prometheus_flags
from .remote_flags import check_remote_flags


def run(argv: Sequence[str]) -> int:
    """Run a command line and return its exit code.

    Args:
        argv: The words after the program's name.
    """
    with guarded_streams():
        return run_guarded(lambda: _dispatch(argv), failure_code=_choose_failure_code(argv))


def _choose_failure_code(argv: Sequence[str]) -> int | None:
    """Return the code for failures of our own where the job's own codes must be told from them."""
    if "run" not in argv:
        return None
    from vramscope.engine.jobs.launch import EXIT_OWN_FAILURE

    from .frame.command_words import names_run
    from .frame.registry import list_verbs

    return EXIT_OWN_FAILURE if names_run(argv, list_verbs()) else None


def _dispatch(argv: Sequence[str]) -> int:
    from .parser import parse

    arguments = parse(argv)
    # Processes that this one starts arrive at the same folder and settings by the same variables.
    for name, variable in (("runtime_dir", "VRAMSCOPE_RUNTIME_DIR"), ("config", "VRAMSCOPE_CONFIG")):
        path = getattr(arguments, name, None)
        if path is not None:
            os.environ[variable] = str(path.absolute())
    if arguments.verb is not None:
        from .frame.registry import run_verb

        _refuse_headless_flags(arguments)
        return run_verb(arguments)
    check_prometheus_flags(arguments)
    check_remote_flags(arguments)
    if arguments.from_prometheus is not None:
        from .prometheus_view import show_prometheus

        return show_prometheus(arguments)
    if is_remote(arguments):
        from .remote_view import show_remote

        return show_remote(arguments)
    if arguments.once or arguments.json:
        from .status import show_status

        show_status(arguments)
    if arguments.duration is not None:
        raise UsageError("--duration goes with --json; the live view runs until you quit it")
    from .live import show_live

    return show_live(arguments)


def _refuse_headless_flags(arguments: Namespace) -> None:
    for flag in ("once", "duration"):
        if getattr(arguments, flag):
            raise UsageError(f"--{flag} shows this node and does not go with the verb {arguments.verb}")
    if arguments.from_prometheus is not None:
        raise UsageError(f"--from-prometheus is a view and does not go with the verb {arguments.verb}")
    check_prometheus_flags(arguments)
    check_remote_flags(arguments)
