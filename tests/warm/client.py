"""Stands for `python`: the server runs the words in a fork of itself, and this ends as that does.

A program of its own, `client.py NAME PYTHON WORD…`, of few modules, so that it starts in a hundredth of a
second. It passes on its streams, its folder, its variables, and the signals that end a program.
"""

import contextlib
import itertools
import json
import os
import select
import signal
import socket
import sys

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)

PASSED_OPTIONS = {"-P", "-u"}
"""Options of Python that the server heeds; with others Python itself is started."""


def run(name: str, python: str, words: list[str]) -> int | None:
    """Return the exit code, negative where a signal ended the program; None where nobody serves."""
    descriptors = [it for it in map(int, os.listdir("/proc/self/fd")) if _is_open(it)]  # noqa: PTH208
    request = {
        "words": words,
        "folder": os.getcwd(),  # noqa: PTH109
        "variables": dict(os.environ),
        "descriptors": descriptors,
        "python": python,
    }
    reply, given = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # Until they can be passed on: else one would end this alone, and leave the program to the server.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server, given:
            try:
                server.connect(f"\0{name}")
                socket.send_fds(server, [json.dumps(request).encode()], [given.fileno(), *descriptors])
            except OSError:
                return None
            given.close()  # else nothing would end the wait if the server ends
            answer = reply.recv(32)
        if not answer:
            return None
        woken = _pass_signals_on(int(answer))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    # A signal just before a plain `recv` would wait for the end of the program.
    while reply not in select.select([reply, woken], [], [])[0]:
        woken.recv(32)
    return int(reply.recv(32))


def _pass_signals_on(pid: int) -> socket.socket:
    """Send to this process what ends a program; return what can be read once a signal has come."""

    def pass_on(number: int, _: object) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended, and how comes next
            os.kill(pid, number)

    woken, waking = socket.socketpair()
    waking.setblocking(False)
    signal.set_wakeup_fd(waking.detach(), warn_on_full_buffer=False)
    for number in PASSED_ON:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, pass_on)
    return woken


def _is_open(descriptor: int) -> bool:
    """Say whether it still is, which that of a folder that was listed is not."""
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    options = itertools.takewhile(
        lambda word: word.startswith("-") and word not in {"-m", "-c"}, sys.argv[3:]
    )
    code = run(sys.argv[1], sys.argv[2], sys.argv[3:]) if PASSED_OPTIONS.issuperset(options) else None
    if code is None:
        os.execv(sys.executable, [sys.executable, *sys.argv[3:]])  # noqa: S606
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)
