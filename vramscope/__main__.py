"""Run vramscope: `python -m vramscope` and the console script `vramscope`."""

import os
import sys


def main() -> int:
    """Run the command line of this process and return its exit code."""
    _leave_out_current_folder()
    _import_msgspec()
    from vramscope.cli.application import run

    open_standard_streams()
    return run(sys.argv[1:], owns_process=True)


def _leave_out_current_folder() -> None:
    """Import nothing from a folder only because it is the current one.

    `python -m` puts that folder first on the search path, and empty or relative entries of PYTHONPATH name it
    too. It may be a stranger's repository with its own `platform.py`.
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


def _import_msgspec() -> None:
    """Import msgspec without typing_extensions, which takes as long; `typing` has all that it asks for."""
    if "typing_extensions" in sys.modules:
        return
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # msgspec then asks `typing`
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules["typing_extensions"]


def open_standard_streams() -> None:
    """Reopen standard streams that the caller closed (`>&-`), before a file of ours gets their number.

    Output to standard error is lost. Output to standard output fails as on a full disk.
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
