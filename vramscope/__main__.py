"""Run vramscope: `python -m vramscope` and the console script `vramscope`."""

import os
import sys


def main() -> int:
    """Run the command line of this process and return its exit code."""
    _leave_out_current_folder()
    from vramscope.cli.application import run

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


if __name__ == "__main__":
    sys.exit(main())
