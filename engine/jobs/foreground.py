"""Runs the command of a job in place of this process, or as its child to say afterwards how it ended.

A child is in the same process group, so the terminal, its keys and job control are its own: what the terminal
sends reaches it directly. A signal that somebody sends to this process alone is passed on.
"""

import ctypes
import errno
import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127
# As in env(1) and the shells.
EXIT_OWN_FAILURE = 125

# An interpreter ignores these from its start, and an ignored signal stays so across exec.
_IGNORED_BY_PYTHON = ("SIGPIPE", "SIGXFZ", "SIGXFSZ")
# Constant of prctl(2).
_PR_SET_PDEATHSIG = 1
# `si_code` of a signal that the kernel sent, as for a key of the terminal: to the whole foreground group.
_FROM_KERNEL = 0x80
# Faults of this very process, and what nobody can block.
_OWN = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP}
_EVERY_S = 5.0
# Slurm signals every process of a step by itself.
_SIGNALS_EACH_PROCESS = "slurmstepd"


def is_runnable(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Return whether a command is likely to run; running one that is not says what is wrong."""
    return shutil.which(command[0], path=environment.get("PATH", os.defpath)) is not None


def exit_code_of(error: OSError) -> int:
    """127 if the command was not found, else 126."""
    return EXIT_NOT_FOUND if error.errno == errno.ENOENT else EXIT_NOT_EXECUTABLE


def become(command: Sequence[str], environment: Mapping[str, str]) -> OSError:
    """Replace this process by a command, found in PATH; return only if that fails, with the reason."""
    for name in _IGNORED_BY_PYTHON:
        number = getattr(signal, name, None)
        if number is not None:
            signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], list(command), environment)  # noqa: S606 - a shell would stand between
    except OSError as error:
        script = find_script(command, environment, error)
        if script is None:
            return error
    try:
        os.execve(script[0], script, environment)  # noqa: S606 - what execvp(3) does
    except OSError as error:
        return error


class Ended(NamedTuple):
    """How a command ended: by an exit code or by a signal."""

    exit_code: int | None
    signal_number: int | None


def run_in_foreground(
    command: Sequence[str], environment: Mapping[str, str], meanwhile: Callable[[], None]
) -> Ended:
    """Run a command to its end.

    Args:
        meanwhile: Called every 5 s while it runs.

    Raises:
        OSError: It cannot be run.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _OWN)
    handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if ignored, how a child ended would be lost
    try:
        process = _start(command, environment, mask, handler)
        return _wait(process.pid, meanwhile)
    finally:
        signal.signal(signal.SIGCHLD, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def end_likewise(ended: Ended) -> int:
    """Return the exit code of a command, or end this process by the signal that ended the command."""
    if ended.signal_number is None:
        return ended.exit_code or 0
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the core is the command's, if there is one
    if ended.signal_number != signal.SIGKILL:
        signal.signal(ended.signal_number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {ended.signal_number})
    os.kill(os.getpid(), ended.signal_number)
    return 128 + ended.signal_number


def _start(
    command: Sequence[str],
    environment: Mapping[str, str],
    mask: set[int | signal.Signals],
    handler: "signal._HANDLER",
) -> "subprocess.Popen[bytes]":
    parent = os.getpid()
    prctl = ctypes.CDLL(None).prctl

    def prepare() -> None:
        # A job that outlived us would get no signal any more: it is killed with us.
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        signal.signal(signal.SIGCHLD, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def start(words: Sequence[str]) -> "subprocess.Popen[bytes]":
        # This process has one thread, so the function between fork and exec finds no lock held.
        return subprocess.Popen(words, env=environment, preexec_fn=prepare, close_fds=False)  # noqa: PLW1509

    try:
        return start(command)
    except OSError as error:
        script = find_script(command, environment, error)
        if script is None:
            raise
        return start(script)


def find_script(command: Sequence[str], environment: Mapping[str, str], error: OSError) -> list[str] | None:
    """Return the command that runs a script without a first line by the shell, as execvp(3) does."""
    if error.errno != errno.ENOEXEC:
        return None
    path = shutil.which(command[0], path=environment.get("PATH", os.defpath))
    return None if path is None else ["/bin/sh", path, *command[1:]]


def _wait(pid: int, meanwhile: Callable[[], None]) -> Ended:
    """Wait for the end of a child, stop and continue with it, and pass signals on."""
    signals = signal.valid_signals() - _OWN - {signal.SIGKILL, signal.SIGSTOP}
    next_s = time.monotonic() + _EVERY_S
    while True:
        ended = _reap(pid)
        if ended is not None:
            return ended
        got = signal.sigtimedwait(signals, max(next_s - time.monotonic(), 0.0))
        if got is None:
            meanwhile()
            next_s = time.monotonic() + _EVERY_S
        elif got.si_signo != signal.SIGCHLD and not _is_everybodys(got):
            _send(pid, got.si_signo)


def _reap(pid: int) -> Ended | None:
    """Note every child that has ended, as an init process must; return how the command ended if it has."""
    while True:
        try:
            found, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        except ChildProcessError:
            return None
        if found == 0:
            return None
        if found != pid:
            continue
        if os.WIFSTOPPED(status):
            # The shell must see it stop; whoever continues us continues the command too.
            os.kill(os.getpid(), signal.SIGSTOP)
            _send(pid, signal.SIGCONT)
        elif os.WIFSIGNALED(status):
            return Ended(None, os.WTERMSIG(status))
        else:
            return Ended(os.WEXITSTATUS(status), None)


def _is_everybodys(got: "signal.struct_siginfo") -> bool:
    """Return whether the command has got a signal as well."""
    if got.si_code == _FROM_KERNEL:
        return True
    try:
        with open(f"/proc/{got.si_pid}/comm", encoding="utf-8") as file:  # noqa: PTH123 - one line
            return file.read().strip() == _SIGNALS_EACH_PROCESS
    except OSError:
        return False


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
