"""`--once` and `--json`: the state of this node, from its agent or sampled by this very process."""

import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

from vramscope.engine.errors import UsageError
from vramscope.engine.settings import Settings
from vramscope.engine.units import parse_duration

from .configuration import read_settings
from .diagnostics import EXIT_INTERRUPTED, complain, leave_now
from .observation import Observer

if TYPE_CHECKING:
    from vramscope.engine.model import NodeStatus


def show_status(arguments: Namespace) -> NoReturn:
    """Print the state of this node once, or one JSON line a tick, and end the process.

    Raises:
        UsageError: The flags contradict each other.
    """
    settings = read_settings(arguments)
    duration_s = read_duration(arguments)
    observer = Observer(interval_s=settings.interval_s, memory_interval_s=settings.memory_interval_s)
    code = 0
    try:
        if not arguments.once:
            code = _print_stream(observer, duration_s)
        elif arguments.json:
            code = _print_json(observer)
        else:
            code = _print_table(observer, settings)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except BaseException:
        observer.close()
        raise
    # Everything is written. Ending threads and interpreter in order would cost a tenth of a second, and
    # would wait for whatever hangs in the driver.
    leave_now(code)


def read_duration(arguments: Namespace) -> float | None:
    """Return the seconds after which to stop; None for never.

    Raises:
        UsageError: It is no time, or goes with `--once`.
    """
    if arguments.duration is None:
        return None
    if arguments.once:
        raise UsageError("--duration does not go with --once, which prints once and leaves")
    try:
        duration_s = parse_duration(arguments.duration)
    except UsageError as error:
        raise UsageError(f"--duration {arguments.duration}: {error}") from error
    if duration_s <= 0:
        raise UsageError(f"--duration {arguments.duration}: expected a time above zero, for example 10m")
    return duration_s


def _print_stream(observer: Observer, duration_s: float | None) -> int:
    from vramscope.exporters.json_lines import write_line

    end_s = None if duration_s is None else time.monotonic() + duration_s
    told = 0
    for status in _follow(observer, end_s):
        write_line(status, sys.stdout.buffer)
        told = _tell(observer, told)
    _tell(observer, told)
    return observer.exit_code


def _follow(observer: Observer, end_s: float | None) -> "Iterator[NodeStatus]":
    """Yield a status an interval; when the time is up, one more as long as nobody knows what is missing."""
    while True:
        left_s = None if end_s is None else end_s - time.monotonic()
        is_over = left_s is not None and left_s <= 0
        if is_over and observer.is_decided:
            return
        status = observer.next(None if is_over else left_s)
        if status is not None:
            yield status


def _print_json(observer: Observer) -> int:
    from vramscope.exporters.json_lines import write_line

    write_line(observer.once(), sys.stdout.buffer)
    _tell(observer)
    return observer.exit_code


def _print_table(observer: Observer, settings: Settings) -> int:
    # Rich takes a while to import: that is done between the two readings.
    status = observer.once(meanwhile=_import_table)
    from vramscope.exporters.table import render_table

    from .printing import choose_style, emit

    style = choose_style(settings)
    text = render_table(status, style, hidden_notes=observer.sentences)
    emit(text, is_ascii=style.is_ascii, is_styled=style.has_color)
    _tell(observer)
    return observer.exit_code


def _import_table() -> None:
    import vramscope.exporters.table  # noqa: F401 - so that it is there when the figures are


def _tell(observer: Observer, told: int = 0) -> int:
    """Say on stderr what has not been told yet; return how many sentences have been."""
    for sentence in observer.sentences[told:]:
        complain(sentence)
    return len(observer.sentences)
