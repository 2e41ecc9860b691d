"""Without a debugger: a text runs once and the process goes on as before, or nothing is done."""

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from vramscope.engine.errors import AttachRefusedError, DebuggerMissingError, UnknownInterpreterError
from vramscope.engine.jobs import attach, handover, injector
from vramscope.engine.jobs.injector import Injection, enter, erase, find_room, inject, rehearse
from vramscope.engine.jobs.interpreter import RUN_STRING, Interpreter, find_interpreter
from vramscope.engine.jobs.pending_calls import LAYOUTS, PendingCalls, UnsettledInterpreterError
from vramscope.engine.jobs.standstill import MemoryMap, ProcessMemory, Standstill
from vramscope.engine.sources.processes import read_status

from ...components import require
from ...waiting import wait_until
from .interpreters import SUPPORTED, find_python, list_pythons
from .targets import HAMMER, SPINNING, Target, running

PYTHONS = list_pythons(*SUPPORTED[:-1])
# One write: other threads print in between.
BEAT = b"beat.append(1); print(f'beat {len(beat)}')\n"
READY = "beat = []\nprint('ready')\n"
WATCHED = """
import sys, time
beat = []
print("ready")
while True:
    sum(range(1000))
    if len(beat) == 2:
        print("end", sorted(globals()))
        time.sleep(0.01)
"""

pytestmark = pytest.mark.skipif(sys.version_info >= attach.SINCE, reason="sys.remote_exec does it")


def look_into(target: Target) -> Interpreter:
    return find_interpreter(read_status(target.pid))


def open_table(target: Target, memory: ProcessMemory | None = None, **changes: object) -> PendingCalls:
    interpreter = look_into(target)._replace(**changes)  # type: ignore[arg-type]  # what a test says fits
    return PendingCalls(interpreter, memory or ProcessMemory(target.pid), MemoryMap(target.pid), target.pid)


@pytest.mark.parametrize("version", sorted(PYTHONS))
def test_every_python_runs_the_text_and_keeps_nothing_of_it(version: str, tmp_path: Path) -> None:
    with running(WATCHED, tmp_path, python=PYTHONS[version]) as target:
        target.wait_for("ready")
        assert rehearse(target.pid) > 0
        for turn in (1, 2):
            injection = inject(target.pid, BEAT)
            target.wait_for(f"beat {turn}\n")
            assert injection.is_taken
            assert injection.stopped_s > 0
            erase(target.pid, injection)
            memory = ProcessMemory(target.pid)
            assert not any(memory.read(injection.room, len(injection.text)))
        target.wait_for("end ['__annotations__', '__builtins__'")
        assert read_status(target.pid).tracer_pid == 0
        assert target.process.poll() is None
    assert target.said.count("beat ") == 2


def test_threads_in_malloc_and_the_collector_survive(tmp_path: Path) -> None:
    with running(f"{HAMMER}print('ready')\n{SPINNING}", tmp_path) as target:
        target.wait_for("ready")
        for turn in range(1, 11):
            erase_after(target, inject(target.pid, BEAT), f"beat {turn}\n")
        assert target.process.poll() is None
    assert target.said.count("beat") == 10


def erase_after(target: Target, injection: Injection, said: str) -> None:
    target.wait_for(said)
    erase(target.pid, injection)


def test_a_process_that_was_forked_is_its_own(tmp_path: Path) -> None:
    script = f"import os\n{READY}os.fork() and os.wait()\nprint(f'child {{os.getpid()}}.')\n{SPINNING}"
    with running(script, tmp_path) as target:
        target.wait_for(".")
        child = int(target.said.split("child ")[1].split(".")[0])
        try:
            inject(child, BEAT)
            target.wait_for("beat 1")
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_main_thread_that_sleeps_is_not_woken_and_takes_the_text_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(injector, "WATCHED_S", 0.05)
    os.mkfifo(tmp_path / "door")
    with running(
        f"{READY}open({str(tmp_path / 'door')!r})\nprint('through')\n{SPINNING}", tmp_path
    ) as target:
        target.wait_for("ready")
        assert not inject(target.pid, BEAT).is_taken
        assert "beat" not in target.said
        with (tmp_path / "door").open("w"):
            target.wait_for("beat 1")


def test_signals_that_arrive_meanwhile_are_delivered_when_the_threads_are_released(tmp_path: Path) -> None:
    class Signalled(Standstill):
        """Sends a signal to the threads while they are traced and run: they stop to receive it."""

        def _list_new(self) -> list[int]:
            new = super()._list_new()
            if not new and numbers[0] not in sent:
                sent.append(numbers[0])
                os.kill(target.pid, numbers[0])
                main = Path(f"/proc/{target.pid}/task/{target.pid}")
                wait_until(lambda: read_state(main) == "t", what="the stop for the signal")
            return new

    sent: list[int] = []
    numbers = [signal.SIGRTMIN + it for it in range(3)]
    script = f"""
import signal, threading, time
for number in {numbers}:
    signal.signal(number, lambda number, _: print("signal", number))
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print("ready")
while True:
    time.sleep(0.001)
"""
    with running(script, tmp_path) as target:
        target.wait_for("ready")
        with Signalled(target.pid, 5.0) as still:
            assert read_status(target.pid).tracer_pid == os.getpid()
            states = [read_state(path) for path in Path(f"/proc/{target.pid}/task").iterdir()]
            assert states == ["t", "t"]
            for number in numbers[1:]:
                os.kill(target.pid, number)
        assert still.stopped_s > 0
        for number in numbers:
            target.wait_for(f"signal {number}\n")


def read_state(task: Path) -> str:
    return (task / "stat").read_text().rpartition(") ")[2][0]


def test_a_table_that_is_locked_is_left_alone_until_it_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(injector, "PAUSES_S", (0.0,))
    with running(f"import time\n{READY}while True: time.sleep(0.001)\n", tmp_path) as target:
        target.wait_for("ready")
        memory = ProcessMemory(target.pid)
        lock = open_table(target)._anchors.lock
        memory.write((lock, bytes(8)))  # the value of a semaphore that somebody has
        with pytest.raises(
            AttachRefusedError, match="its table of pending calls is in use or full; try again"
        ):
            inject(target.pid, BEAT)
        memory.write((lock, (1).to_bytes(8, "little")))
        inject(target.pid, BEAT)
        target.wait_for("beat 1")


def test_a_job_with_threads_is_not_stopped_again_once_it_was_stopped_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Long(Standstill):
        """Stops a job for a moment, and says that it took long."""

        def __exit__(self, *raised: Any) -> None:
            super().__exit__(*raised)
            stops.append(self.stopped_s)
            self.stopped_s = 0.12

    stops: list[float] = []
    monkeypatch.setattr(injector, "Standstill", Long)
    script = f"""
import threading, time
{READY}
def work():
    begun.wait()
    while True:
        sum(range(1000))
        print("alive")
        time.sleep(0.001)
# A look at threads that are starting is inconsistent.
begun = threading.Barrier(6)
for _ in range(6):
    threading.Thread(target=work, daemon=True).start()
while True:
    time.sleep(0.001)
"""
    with running(script, tmp_path) as target:
        target.wait_for("alive")
        memory = ProcessMemory(target.pid)
        lock = open_table(target)._anchors.lock
        memory.write((lock, bytes(8)))
        with pytest.raises(AttachRefusedError, match="is in use or full; try again"):
            inject(target.pid, BEAT)
        # A third one could bring the sum above the bound.
        assert len(stops) == 2
        assert 3 * 0.12 > injector.MOST_STOPPED_S >= 2 * 0.12
        memory.write((lock, (1).to_bytes(8, "little")))
        said = len(target.said)
        wait_until(lambda: len(target.said) > said + 20, what="the threads to go on")
        assert read_status(target.pid).tracer_pid == 0
        inject(target.pid, BEAT)
        target.wait_for("beat 1")


def test_a_write_that_fails_half_way_is_undone(tmp_path: Path) -> None:
    class Failing(ProcessMemory):
        """Fails once, before its last range."""

        has_failed = False

        def write(self, *pieces: tuple[int, bytes]) -> None:
            if len(pieces) > 1 and not self.has_failed:
                self.has_failed = True
                super().write(*pieces[:-1])
                raise OSError(12, "Cannot allocate memory")
            super().write(*pieces)

    with running(f"import time\n{READY}while True: time.sleep(0.001)\n", tmp_path) as target:
        target.wait_for("ready")
        memory = Failing(target.pid)
        entry, calls = make_entry(target, memory)
        before = calls.read()
        with pytest.raises(OSError, match="Cannot allocate memory"):
            entry.put()
        assert calls.read() == before
        entry.put()
        target.wait_for("beat 1")


def make_entry(target: Target, memory: ProcessMemory) -> tuple[injector._Entry, PendingCalls]:
    interpreter = look_into(target)
    room = find_room(interpreter, memory, MemoryMap(target.pid), len(BEAT) + 1)
    calls = open_table(target, memory)
    text = BEAT + b"\0"
    entry = injector._Entry(target.pid, memory, calls, interpreter.functions[RUN_STRING], room, text)
    return entry, calls


def test_a_flag_that_a_thread_overwrites_is_set_again_unless_the_job_was_stopped_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Overwritten(ProcessMemory):
        """Clears the flag right after it was set for the first time, as a thread does that was in between."""

        times = 0

        def write(self, *pieces: tuple[int, bytes]) -> None:
            if not self.times:
                address, flags = pieces[-1]
                pieces = (*pieces[:-1], (address, bytes(len(flags))))
            self.times += 1
            super().write(*pieces)

    script = f"{READY}n = 0\nwhile True:\n    n += 1\n"  # never looks at anything but the flag
    with running(script, tmp_path) as target:
        target.wait_for("ready")
        memory = Overwritten(target.pid)
        entry, _ = make_entry(target, memory)
        entry.put()
        # A job that was stopped for long already is left alone: it takes the entry whenever it looks.
        stopped_s, entry.stopped_s = entry.stopped_s, injector.MOST_STOPPED_S
        monkeypatch.setattr(injector, "WATCHED_S", 0.1)
        assert not entry.watch()
        assert memory.times == 1
        entry.stopped_s = stopped_s
        monkeypatch.undo()
        assert entry.watch()
        assert memory.times > 1
        target.wait_for("beat 1")


def test_a_thread_that_cannot_be_stopped_is_waited_for_in_vain_and_all_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "door")
    # The child opens the door before it runs a program; until then the kernel lets its parent not stop.
    script = f"""
import ctypes, os, threading
library = ctypes.CDLL(None)
actions, pid = ctypes.create_string_buffer(256), ctypes.c_int()
library.posix_spawn_file_actions_init(actions)
library.posix_spawn_file_actions_addopen(actions, 0, {os.fsencode(tmp_path / "door")!r}, os.O_RDONLY, 0)
words = (ctypes.c_char_p * 2)(b"true", None)
def spawn():
    print("through", library.posix_spawn(ctypes.byref(pid), b"/bin/true", actions, None, words, None))
thread = threading.Thread(target=spawn)
thread.start()
print("thread", thread.native_id)
while True:
    library.usleep(2000)
    print("alive")
"""
    with running(script, tmp_path) as target:
        target.wait_for("alive")
        thread = Path(f"/proc/{target.pid}/task", target.said.split()[1])
        wait_until(lambda: read_state(thread) == "D", what="the wait")
        interpreter = look_into(target)
        monkeypatch.setattr(injector, "_rehearsed", {injector.identify(interpreter)})
        with pytest.raises(AttachRefusedError, match=r"did not stop within 0\.1 s: a thread is in a system"):
            enter(interpreter, BEAT)
        said = len(target.said)
        wait_until(lambda: len(target.said) > said + 20, what="the other thread to go on")
        with (tmp_path / "door").open("w"):
            target.wait_for("through 0")


class Distorted(ProcessMemory):
    """Shows other bytes than there are, and refuses to write."""

    def __init__(self, pid: int, changes: dict[int, bytes]) -> None:
        super().__init__(pid)
        self._changes = changes

    def read(self, address: int, size_bytes: int) -> bytes:
        found = bytearray(super().read(address, size_bytes))
        for place, data in self._changes.items():
            if address <= place and place + len(data) <= address + size_bytes:
                found[place - address : place - address + len(data)] = data
        return bytes(found)

    def write(self, *pieces: tuple[int, bytes]) -> None:
        raise AssertionError(f"wrote {pieces}")


def test_structures_that_differ_in_anything_are_refused(tmp_path: Path) -> None:
    with running(f"import time\n{READY}while True: time.sleep(0.01)\n", tmp_path) as target:
        target.wait_for("ready")
        interpreter = look_into(target)
        layout, runtime = LAYOUTS[interpreter.version], interpreter.runtime
        assert runtime is not None
        main, ring, breaker, lock = open_table(target)._anchors
        odd, nowhere = (7).to_bytes(8, "little"), (8).to_bytes(8, "little")
        places = {
            runtime + layout.initialized: bytes(4),
            runtime + layout.finalizing: odd,
            runtime + layout.main_interpreter: nowhere,
            runtime + layout.main_thread: odd,
            main + layout.next_interpreter: odd,
            main + layout.number: odd,
            main + layout.runtime: odd,
            main + layout.first_thread: nowhere,
            ring + layout.ring.first: (layout.ring.slots).to_bytes(4, "little"),
            ring + layout.ring.entries: nowhere,
            ring + layout.ring.to_do: odd[:4],
            **({lock: odd} if layout.breaker_in_thread is None else {lock: b"\x80"}),
            **({breaker: odd[:4]} if layout.breaker_in_thread is None else {}),
        }
        for place, data in places.items():
            with pytest.raises(UnknownInterpreterError):
                open_table(target, Distorted(target.pid, {place: data}))
        open_table(target, Distorted(target.pid, {}))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": (3, 15)}, "its version is not known"),
        ({"is_debug": True}, "it is a debug build"),
        ({"has_semaphores": False}, "its locks are no semaphores"),
        ({"runtime": None}, "its version is not known"),
    ],
)
def test_builds_that_differ_are_refused(changes: dict[str, object], reason: str, tmp_path: Path) -> None:
    own = find_interpreter(read_status(os.getpid()))._replace(**changes)  # type: ignore[arg-type]
    with pytest.raises(UnknownInterpreterError, match=reason):
        PendingCalls(own, ProcessMemory(os.getpid()), MemoryMap(os.getpid()), os.getpid())


def test_an_interpreter_without_a_gil_is_refused(tmp_path: Path) -> None:
    python = find_python("3.13")
    if python is None:
        pytest.skip("no Python 3.13 is on PATH, in ~/.pyenv or named by VRAMSCOPE_TEST_PYTHON313")
    with running(f"import time\n{READY}while True: time.sleep(0.01)\n", tmp_path, python=python) as target:
        target.wait_for("ready")
        runtime = look_into(target).runtime
        assert runtime is not None
        distorted = Distorted(target.pid, {runtime + 16: (1).to_bytes(8, "little")})
        with pytest.raises(UnknownInterpreterError, match="it runs threads without a GIL"):
            open_table(target, distorted)


def test_a_program_that_is_not_python_itself_is_not_rehearsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its library is that of all targets, which an earlier test in this process may have rehearsed.
    monkeypatch.setattr(injector, "_rehearsed", set())
    program = tmp_path / "trainer"
    shutil.copy(Path(sys.executable).resolve(), program)
    library = str(Path(sys.executable).resolve().parent.parent / "lib")
    variables = {"LD_LIBRARY_PATH": library, "PYTHONHOME": sys.base_prefix}
    with running(f"{READY}{SPINNING}", tmp_path, python=program, **variables) as target:
        target.wait_for("ready")
        with pytest.raises(
            UnknownInterpreterError, match="its program is trainer, with which nothing can be"
        ):
            enter(look_into(target), BEAT)


def test_a_python_that_is_unknown_is_left_to_gdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require("gdb")

    def refuse(*_: object) -> Injection:
        raise UnknownInterpreterError("it is a debug build")

    payload = tmp_path / "payload.py"
    payload.write_bytes(BEAT)
    monkeypatch.setattr(injector, "enter", refuse)
    with running(f"{READY}{SPINNING}", tmp_path) as target:
        target.wait_for("ready")
        entry = attach._pass_over(look_into(target), payload)
        assert (entry.way, entry.is_pending) == ("gdb", False)
        target.wait_for("beat 1")
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(DebuggerMissingError, match=r"unknown to vramscope \(it is a debug build\): att"):
            attach._pass_over(look_into(target), payload)


def test_gdb_is_kept_from_a_process_that_has_started_another_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(interpreter: Interpreter, _: bytes) -> Injection:
        os.kill(interpreter.pid, signal.SIGUSR1)
        target.wait_for("second")
        raise UnknownInterpreterError("its memory cannot be read")

    monkeypatch.setattr(injector, "enter", refuse)
    monkeypatch.setattr("vramscope.engine.jobs.gdb.inject", lambda *_: pytest.fail("gdb was called"))
    script = """
import os, signal, sys, time
signal.signal(signal.SIGUSR1, lambda *_: os.execv(sys.executable, [sys.executable, *sys.argv, "again"]))
print("second" if sys.argv[1:] else "ready")
while True:
    time.sleep(0.001)
"""
    with running(script, tmp_path) as target:
        target.wait_for("ready")
        with pytest.raises(AttachRefusedError, match="has started another program meanwhile; try again"):
            attach._pass_over(look_into(target), tmp_path / "payload.py")


def test_a_python_that_ends_is_refused_and_not_left_to_gdb(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Injection:
        raise UnsettledInterpreterError("its Python is ending")

    monkeypatch.setattr(injector, "inject", refuse)
    with pytest.raises(AttachRefusedError, match="process 7: its Python is ending; try again"):
        injector._answer(injector.Request(7, BEAT, is_rehearsed=True))


def test_a_thread_that_a_listing_skips_is_stopped_too(tmp_path: Path) -> None:
    class Skipping(Standstill):
        """Finds only the main thread at first, and nothing once all that it knows stand still."""

        def _list_new(self) -> list[int]:
            looks.append(len(self._threads))
            new = super()._list_new()
            return [it for it in new if it == target.pid] if len(looks) <= 3 else new

    looks: list[int] = []
    script = """
import threading, time
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print("ready")
while True:
    time.sleep(0.001)
"""
    with running(script, tmp_path) as target:
        target.wait_for("ready")
        with Skipping(target.pid, 5.0):
            states = [read_state(path) for path in Path(f"/proc/{target.pid}/task").iterdir()]
        assert states == ["t", "t"]


CAUGHT = """
import signal, time
def leave(number, frame):
    raise SystemExit(40 + number)
signal.signal(signal.SIGTERM, leave)
print("ready")
try:
    while True:
        time.sleep(0.001)
except BaseException as error:
    print("caught", type(error).__name__)
    raise
finally:
    print("tidied")
"""


@pytest.mark.parametrize("version", sorted(PYTHONS))
@pytest.mark.parametrize(("name", "kind"), [("SIGINT", "KeyboardInterrupt"), ("SIGTERM", "SystemExit")])
def test_a_signal_that_interrupts_the_loading_reaches_the_program(
    version: str, name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that failed would give the program a SystemError instead, or nothing."""
    shim = tmp_path / "shim"
    shim.mkdir()
    (shim / "vramscope_shim.py").write_text(
        f"import os, signal, time\nos.kill(os.getpid(), signal.{name})\ntime.sleep(60)\n"
    )
    monkeypatch.setattr(handover, "SHIM", shim)
    with running(CAUGHT, tmp_path, python=PYTHONS[version]) as target:
        target.wait_for("ready")
        passed = handover.Handover(tmp_path, target.pid)
        passed.write()
        inject(target.pid, handover.write_pointer(passed.payload))
        target.wait_for(f"caught {kind}\ntidied\n")
        if name == "SIGTERM":
            assert target.process.wait(timeout=60) == 40 + signal.SIGTERM
        assert passed.read_report().startswith(f"failed {kind}")
    assert "SystemError" not in target.said


@pytest.mark.parametrize("version", sorted(PYTHONS))
def test_a_ctrl_c_before_the_payload_begins_reaches_the_program(version: str, tmp_path: Path) -> None:
    payload = tmp_path / "payload.py"
    payload.write_text("raise KeyboardInterrupt\n")
    with running(CAUGHT, tmp_path, python=PYTHONS[version]) as target:
        target.wait_for("ready")
        inject(target.pid, handover.write_pointer(payload))
        target.wait_for("caught KeyboardInterrupt\ntidied\n")
    assert "SystemError" not in target.said


def test_a_process_that_has_another_runtime_folder_is_refused(tmp_path: Path) -> None:
    unshare = require("unshare")
    if os.geteuid() != 0:
        pytest.skip("only root makes a mount namespace here")
    folder = tmp_path / "runtime"
    folder.mkdir()
    code = f"mount -t tmpfs none {folder} && echo ready && sleep 60"
    with running(
        f"import os\nos.execvp({unshare!r}, ['unshare', '--mount', 'sh', '-c', {code!r}])\n", tmp_path
    ) as target:
        target.wait_for("ready")
        with pytest.raises(
            AttachRefusedError, match=f"where {folder} is not visible: run vramscope inside it"
        ):
            attach._check_sees_folder(read_status(target.pid), folder)
