"""One thing that was looked at, and looking with a deadline."""

import threading
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

CheckStatus = Literal["ok", "note", "warning", "problem"]
"""`note`: worth knowing; `warning`: something works less well; `problem`: something does not work."""

EXIT_INTERNAL = 1


class Check(msgspec.Struct, frozen=True):
    """What was found on one subject, and what to do."""

    name: str
    status: CheckStatus
    found: str
    """What is there, in one sentence."""
    advice: str = ""
    """What to do, in one sentence; empty where there is nothing to do."""
    exit_code: int = 0
    """Exit code of the program where this is the gravest problem."""


class DoctorReport(msgspec.Struct, frozen=True):
    """Everything that was looked at: the object that `vramscope doctor --json` prints."""

    schema: Literal["vramscope.doctor/1"]
    version: str
    checks: tuple[Check, ...]
    exit_code: int


class Examination(msgspec.Struct, frozen=True):
    """A subject, and how to look at it."""

    name: str
    examine: Callable[[], Iterable[Check]]
    deadline_s: float = 5.0
    exit_code: int = EXIT_INTERNAL
    """Exit code where the looking itself does not come back."""


class Patient:
    """Runs examinations; one that hangs is left behind."""

    def __init__(self) -> None:
        self.is_hanging = False
        """Whether a thread was left behind; the process must then be ended at once."""

    def examine(self, examination: Examination) -> list[Check]:
        """Return what an examination found; what it had not found by its deadline is a problem."""
        found: list[Check] = []
        thread = threading.Thread(target=_collect, args=(examination, found), daemon=True)
        thread.start()
        thread.join(examination.deadline_s)
        checks = list(found)
        if thread.is_alive():
            self.is_hanging = True
            checks.append(
                Check(
                    examination.name,
                    "problem",
                    f"no answer within {examination.deadline_s:g} s: a call hangs",
                    "see `dmesg`; a hung NVIDIA driver needs a reset of the device or a reboot",
                    examination.exit_code,
                )
            )
        return checks


def _collect(examination: Examination, found: list[Check]) -> None:
    try:
        # One at a time: a hang half-way must leave what was found so far.
        for check in examination.examine():
            found.append(check)
    except Exception as error:  # noqa: BLE001 - a check that fails is itself a finding
        found.append(
            Check(
                examination.name,
                "problem",
                f"could not be looked at: {type(error).__name__}: {error}",
                "please report this",
                EXIT_INTERNAL,
            )
        )
