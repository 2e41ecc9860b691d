"""`vramscope doctor`: what was found, what is wrong, what to do."""

import sys
import textwrap
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from vramscope import __version__

from ..frame.flag_words import add_format_flags
from ..frame.registry import SubParsers

if TYPE_CHECKING:
    from ..doctor.check import Check, DoctorReport, Examination

SUMMARY = "say what was found here, what is wrong and what to do"


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    """Add the verb's parser."""
    parser = subparsers.add_parser(
        "doctor",
        help=SUMMARY,
        description="Look at driver, library, devices, agent, terminal and versions; "
        "say what was found, what is wrong and what to do.",
        parents=common,
        allow_abbrev=False,
    )
    add_format_flags(parser, text="text is the default", json="print one JSON object (vramscope.doctor/1)")


def run(arguments: Namespace) -> int:
    """Print the report; return 0, or the exit code of the gravest problem."""
    from ..doctor.check import DoctorReport, Patient
    from ..frame.diagnostics import leave_now

    patient = Patient()
    checks = [check for examination in _plan(arguments) for check in patient.examine(examination)]
    code = next((check.exit_code for check in checks if check.status == "problem"), 0)
    report = DoctorReport(
        schema="vramscope.doctor/1", version=__version__, checks=tuple(checks), exit_code=code
    )
    _print(report, is_json=arguments.json)
    if patient.is_hanging:
        leave_now(code)
    return code


def _plan(arguments: Namespace) -> "list[Examination]":
    """Return the examinations, those first whose problems count most."""
    from ..doctor import agent, driver, system, terminal
    from ..doctor.check import Examination

    return [
        Examination("vramscope", system.examine_versions),
        Examination("driver", driver.examine_driver, exit_code=5),
        Examination("pynvml", driver.examine_module),
        Examination("device files", driver.examine_device_files),
        Examination("devices", driver.examine_devices, exit_code=5),
        Examination("host memory", system.examine_host),
        Examination("runtime folder", agent.examine_runtime_folder),
        Examination("agent", agent.examine_agent),
        Examination("ZeroMQ", agent.examine_zeromq),
        Examination("plug-ins", system.examine_plugins),
        Examination("settings", lambda: system.examine_settings(arguments)),
        Examination("terminal", terminal.examine_terminal),
    ]


def _print(report: "DoctorReport", *, is_json: bool) -> None:
    if is_json:
        from vramscope.exporters.json_lines import write_line

        write_line(report, sys.stdout.buffer)
        return
    import shutil

    from ..frame.printing import emit

    width = max(40, min(120, shutil.get_terminal_size(fallback=(100, 24)).columns))
    text = "\n".join(_render(report.checks, width)) + "\n"
    emit(text)


def _render(checks: "Sequence[Check]", width: int) -> Iterator[str]:
    """Yield the lines of the report for people."""
    from vramscope.engine.text import make_printable

    name_width = max(len(check.name) for check in checks)
    indent = " " * (len("problem") + name_width + 4)
    for check in checks:
        head = f"{check.status:<7}  {check.name:<{name_width}}  "
        yield from textwrap.wrap(
            make_printable(check.found), width, initial_indent=head, subsequent_indent=indent
        )
        if check.advice:
            yield from textwrap.wrap(
                make_printable(check.advice),
                width,
                initial_indent=f"{indent}→ ",
                subsequent_indent=f"{indent}  ",
            )
    counts = {status: sum(check.status == status for check in checks) for status in ("problem", "warning")}
    yield ""
    if counts["problem"] or counts["warning"]:
        yield ", ".join(
            f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts.items() if count
        )
    else:
        yield "everything is well"
