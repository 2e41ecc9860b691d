"""`vramscope doctor`: what works on this machine, what is wrong, and what to do."""

import textwrap
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from vramscope import __version__

from ..frame.emit import emit_json
from ..frame.flags import add_format_flags
from ..frame.parse import SubParsers, add_verb

if TYPE_CHECKING:
    from ..doctor import Check, DoctorReport

DESCRIPTION = "Check driver, devices, agent, terminal and versions, and say what is wrong and what to do."
EXAMPLES = """\
vramscope doctor
vramscope doctor --json | jq '.checks[] | select(.status == "problem")'"""
EXIT_CODES: dict[int | str, str] = {
    0: "no problem",
    1: "a check failed or hangs, or ZeroMQ does not work",
    2: "wrong flags or settings",
    4: "no device or no driver library",
    5: "the driver is not loaded, or does not match its library",
    6: "no permission",
    7: "the agent does not answer",
}


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_verb(subparsers, common, "doctor", DESCRIPTION, examples=EXAMPLES, exit_codes=EXIT_CODES)
    add_format_flags(parser, text="text is the default", json="print one JSON object (vramscope.doctor/1)")


def run(arguments: Namespace) -> int:
    from ..doctor import DoctorReport, Patient, list_examinations
    from ..frame.emit import leave_now

    patient = Patient()
    checks = [check for examination in list_examinations(arguments) for check in patient.examine(examination)]
    code = next((check.exit_code for check in checks if check.status == "problem"), 0)
    report = DoctorReport(
        schema="vramscope.doctor/1", version=__version__, checks=tuple(checks), exit_code=code
    )
    _print(report, is_json=arguments.json)
    if patient.is_hanging:
        leave_now(code)
    return code


def _print(report: "DoctorReport", *, is_json: bool) -> None:
    if is_json:
        emit_json(report)
        return
    import shutil

    from ..frame.emit import emit

    width = max(40, min(120, shutil.get_terminal_size(fallback=(100, 24)).columns))
    text = "\n".join(_render(report.checks, width)) + "\n"
    emit(text)


def _render(checks: "Sequence[Check]", width: int) -> Iterator[str]:
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
        yield "no problems found"
