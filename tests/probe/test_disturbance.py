"""What a program does with its process stays its own: signals, forks, descriptors, limits."""

import signal
import textwrap
import threading
from pathlib import Path

from tests.probe.processes import run
from vramscope.engine.probe.thread import SamplerThread

IMPORTS = "import faulthandler, os, signal, threading\n"


def watch(script: str) -> str:
    """Return a script of a test with what it imports."""
    return IMPORTS + textwrap.dedent(script)


def test_a_signal_that_the_program_waits_for_reaches_it(tmp_path: Path) -> None:
    script = """
    import torch
    awaited = {signal.SIGUSR1, signal.SIGTERM, signal.SIGCHLD}
    assert probe.is_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    for sent in (signal.SIGUSR1, signal.SIGTERM):
        os.kill(os.getpid(), sent)
        print(signal.sigwait(awaited).name)
    """
    assert run(tmp_path, watch(script)) == "SIGUSR1\nSIGTERM\n"


def test_the_thread_takes_no_signal_of_the_process_but_its_own_faults() -> None:
    masks: list[set[int]] = []
    has_ticked = threading.Event()

    def tick() -> None:
        masks.append(set(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
        has_ticked.set()

    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    SamplerThread(tick).start()
    assert has_ticked.wait(10)
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1, signal.SIGALRM} <= masks[0]
    assert not masks[0] & {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
