"""Run vramscope: `python -m vramscope` and the console script `vramscope`."""

import os
import sys


def main() -> int:
    """Run the command line of this process and return its exit code."""
    _leave_out_current_folder()
    from vramscope.cli.application import run

    open_standard_streams()
    return run(sys.argv[1:])


def _leave_out_current_folder() -> None:
    """Import nothing from a folder only because it is the current one.

    `python -m` puts that folder first on the search path; an empty or relative entry of PYTHONPATH names it,
    or one below it. It may be a stranger's repository with a `platform.py` of its own.
    """
    try:
        current = os.getcwd()  # noqa: PTH109 - pathlib would be imported from that very folder
    except OSError:  # it was removed
        return
    own = __file__.rpartition("/")[0].rpartition("/")[0]  # of a checkout that is not installed
    if not sys.flags.safe_path and sys.path[:1] == [current] != [own]:
        del sys.path[0]
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    relative = (entry for entry in entries if not entry.startswith("/"))
    named = {os.path.abspath(entry) for entry in relative} - {*entries, own}  # noqa: PTH100 - as above
    sys.path[:] = [entry for entry in sys.path if entry not in named]


def open_standard_streams() -> None:
    """Open what the caller has closed (`>&-`), before a file of ours gets its number.

    What is printed on standard error is lost. On standard output it is an error, like that of a full disk:
    the stream cannot be written to.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            nothing = os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY)
            if nothing != number:
                os.dup2(nothing, number)
                os.close(nothing)
            setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w", encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main())
