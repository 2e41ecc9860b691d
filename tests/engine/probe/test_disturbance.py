"""What a program does with its process stays its own: signals, forks, descriptors, limits."""

import signal
import textwrap
import threading
from pathlib import Path

from tests.engine.probe.hub import listen
from tests.engine.probe.processes import MODEL, finish, run_beside_torch, start_beside_torch
from vramscope.engine.probe.session import SamplerThread
from vramscope.engine.ranks.messages import Hello, Readings

IMPORTS = "import os, signal, socket, threading, time\n"


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
    assert run_beside_torch(tmp_path, watch(script)).stdout == "SIGUSR1\nSIGTERM\n"


def test_the_thread_takes_no_signal_of_the_process_but_its_own_faults() -> None:
    masks: list[set[int]] = []
    has_ticked = threading.Event()

    def tick() -> None:
        masks.append(set(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
        has_ticked.set()

    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    SamplerThread(tick).start()
    assert has_ticked.wait(60)
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1, signal.SIGALRM} <= masks[0]
    assert not masks[0] & {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


REUSED = """
    train(2)
    print("connected", flush=True)
    sys.stdin.readline()
    os.closerange(3, 4096)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    files = [os.open("/dev/zero", os.O_RDONLY) for _ in range(20)]
    own = [ours.fileno(), theirs.fileno(), *files]
    kept = [os.fstat(each).st_ino for each in own]
    def is_untouched():
        return [os.fstat(each).st_ino for each in own] == kept
    for _ in range(3):
        child = os.fork()
        if child == 0:
            os._exit(0 if is_untouched() else 7)
        print(os.waitpid(child, 0)[1])
    print("reused", flush=True)
    sys.stdin.readline()
    train(1)
    probe.stop()
    for each in (ours, theirs):
        each.setblocking(False)
        try:
            print(each.recv(99))
        except BlockingIOError:
            print("nothing")
    print(is_untouched(), failures())
"""


def test_descriptors_that_the_program_took_over_are_neither_closed_nor_written_to(tmp_path: Path) -> None:
    with listen(tmp_path) as hub:
        process = start_beside_torch(tmp_path, MODEL + watch(REUSED))
        assert process.stdout.readline() == "connected\n"
        hub.wait_for(Readings)
        process.stdin.write("reuse\n")
        process.stdin.flush()
        hub.wait_for(Hello, 2)
        process.stdin.write("end\n")
        process.stdin.flush()
        lines = finish(process).splitlines()
        assert lines == ["0", "0", "0", "reused", "nothing", "nothing", "True []"]
        assert len(hub.connections) == 2


BOMB = """
    train(2)
    assert probe.is_running()
    # No system has room for such a stack: from here on threads cannot be started.
    threading.stack_size(1 << 47)
    for child in range(40):
        if os.fork() == 0:
            if os.fork() == 0:
                os._exit(threading.active_count() - 1)
            os._exit(os.wait()[1] >> 8)
        assert os.wait()[1] == 0
    train(1)
    assert not probe.is_running()
    threading.stack_size(0)
    while not probe.is_running():
        train(1, pause=0.01)
    print(len(failures()), failures()[0].split(" failed")[0])
"""


def test_forks_at_the_limit_of_threads_print_nothing_and_the_sampler_comes_back(tmp_path: Path) -> None:
    with listen(tmp_path) as hub:
        assert (
            run_beside_torch(tmp_path, MODEL + watch(BOMB)).stdout == "1 starting the thread that samples\n"
        )
        hub.wait_for_goodbye()


def test_a_hook_of_a_fork_that_fails_prints_nothing_and_leaves_one_note(tmp_path: Path) -> None:
    script = """
    import torch
    def fail():
        raise OSError("gone")
    session = sys.modules["vramscope_probe.base.current"].session
    session.pause = session.go_on = session.fall_silent = fail
    for _ in range(5):
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
    print(failures())
    """
    assert run_beside_torch(tmp_path, watch(script)).stdout == (
        "['what comes before a fork failed: OSError: gone', "
        "'what follows a fork in the parent failed: OSError: gone']\n"
    )
