"""The terminal: what it is, what it can show, and what stands between it and vramscope."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping

from vramscope.engine.errors import UsageError
from vramscope.tui.terminal.abilities import read_abilities

from .check import Check

VERSION_WITHIN_S = 2.0


def examine_terminal(environ: Mapping[str, str] | None = None) -> Iterator[Check]:
    """Look at what the live view could draw here."""
    environ = os.environ if environ is None else environ
    size = shutil.get_terminal_size(fallback=(0, 0))
    where = f"TERM={environ.get('TERM', '')}, {size.columns}x{size.lines}"
    try:
        abilities = read_abilities(
            environ, is_input_tty=_is_tty(sys.stdin), is_output_tty=_is_tty(sys.stdout)
        )
    except UsageError as error:
        found, _, advice = str(error).partition("; ")
        yield Check("terminal", "note", f"{where}: {found}", advice)
    else:
        characters = "ASCII only" if abilities.is_ascii else "UTF-8"
        found = f"{where}, colours {abilities.color_depth}, {characters}"
        if abilities.reason:
            yield Check("terminal", "warning", f"{found}: {abilities.reason}")
        else:
            yield Check("terminal", "ok", found)
    yield from _examine_multiplexer(environ)


def _examine_multiplexer(environ: Mapping[str, str]) -> Iterator[Check]:
    """Look at tmux or screen, where vramscope runs inside one."""
    if environ.get("TMUX"):
        yield Check("multiplexer", "ok", f"inside {_ask_version('tmux', '-V')}")
    elif environ.get("STY"):
        yield Check("multiplexer", "ok", f"inside {_ask_version('screen', '-v')}")


def _ask_version(program: str, flag: str) -> str:
    try:
        answer = subprocess.run(
            [program, flag], capture_output=True, text=True, timeout=VERSION_WITHIN_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return f"{program} of unknown version"
    return answer.stdout.strip().partition("\n")[0] or f"{program} of unknown version"


def _is_tty(stream: object) -> bool:
    return bool(getattr(stream, "isatty", bool)())
