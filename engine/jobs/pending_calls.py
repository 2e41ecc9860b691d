"""CPython's table of calls that the main thread makes by itself, read and filled from outside.

`Py_AddPendingCall` puts a function and its argument into this table, counts it, and sets a flag that the main
thread looks at between two instructions, where signal handlers may run as well. It then takes the entry out
and calls the function, with the GIL held. Here the same fields are written as that function writes them.

Their places follow from CPython's headers; they are in no public interface. So everything around them is
checked first: an interpreter whose structures differ in anything is refused.
"""

import platform
import struct
from collections.abc import Iterator
from typing import NamedTuple

from ..errors import UnknownInterpreterError
from .interpreter import Interpreter
from .standstill import MemoryMap, ProcessMemory

MACHINES = ("x86_64", "aarch64")
_POINTER_BYTES = 8
_MOST_THREADS = 100_000
# `_PY_CALLS_TO_DO_BIT` of 3.13.
_CALLS_TO_DO = 1 << 2
_COOKIE = b"xdebugpy"


class UnsettledInterpreterError(UnknownInterpreterError):
    """It starts or ends at this moment; or nothing is where it should be."""


class Ring(NamedTuple):
    """Places in `struct _pending_calls`."""

    lock: int
    # `calls_to_do`, which is 0 or 1; or `npending`, the number of entries.
    to_do: int
    entries: int
    entry_bytes: int
    first: int
    # First free entry: `last`, or `next`.
    end: int
    slots: int
    most_entries: int
    is_counted: bool = False
    # Whether an entry is set to zeros when it is taken out.
    is_cleared: bool = True
    # Where the table of the main thread is unused or has a fixed value: place, size, value.
    constants: tuple[tuple[int, int, int], ...] = ()

    @property
    def size_bytes(self) -> int:
        return self.end + 4


class Layout(NamedTuple):
    """Places in the structures of one minor version; the same on x86-64 and AArch64."""

    ring: Ring
    # In `_PyRuntime`.
    initialized: int
    finalizing: int
    main_interpreter: int
    main_thread: int
    # In `PyInterpreterState`.
    next_interpreter: int
    number: int
    runtime: int
    first_thread: int
    # In `PyThreadState`.
    thread_id: int
    native_id: int | None = None
    # The table of the main thread, in the interpreter or in `_PyRuntime`.
    ring_in_interpreter: int | None = None
    ring_in_runtime: int | None = None
    # `eval_breaker`, in the interpreter, or in the state of the main thread, to which `_PyRuntime` points.
    breaker_in_interpreter: int | None = None
    breaker_in_thread: int | None = None
    main_state: int | None = None
    # Further numbers of `_PyRuntime`, which its own description of itself has since 3.13: place and value.
    described: tuple[tuple[int, int], ...] = ()


# Places in bytes, by `offsetof` on Include/internal/pycore_runtime.h, pycore_interp.h, pycore_ceval_state.h
# and Include/cpython/pystate.h of CPython 3.9.18, 3.10.13, 3.11.2, 3.11.7, 3.12.1, 3.12.10 and 3.13.0, with
# the compilers of x86-64 and AArch64.
_RING_3_9 = Ring(
    lock=0, to_do=8, entries=16, entry_bytes=16, first=528, end=532, slots=32, most_entries=31,
    is_cleared=False,
)  # fmt: skip
_RING_3_12 = Ring(
    lock=8, to_do=16, entries=24, entry_bytes=16, first=536, end=540, slots=32, most_entries=31,
    constants=((0, 4, 0),),  # busy: set in the table of the interpreter only
)  # fmt: skip
_RING_3_13 = Ring(
    lock=8, to_do=12, entries=24, entry_bytes=24, first=7224, end=7228, slots=300, most_entries=32,
    is_counted=True,
    constants=((0, 8, 0), (16, 4, 32), (20, 4, 0)),  # handling_thread, max, maxloop
)  # fmt: skip
LAYOUTS = {
    (3, 9): Layout(
        _RING_3_9, initialized=12, finalizing=16, main_interpreter=40, main_thread=72,
        next_interpreter=0, number=24, runtime=16, first_thread=8, thread_id=176,
        ring_in_interpreter=80, breaker_in_interpreter=72,
    ),
    (3, 10): Layout(
        _RING_3_9, initialized=12, finalizing=16, main_interpreter=40, main_thread=72,
        next_interpreter=0, number=24, runtime=16, first_thread=8, thread_id=176,
        ring_in_interpreter=80, breaker_in_interpreter=68,
    ),
    (3, 11): Layout(
        _RING_3_9, initialized=16, finalizing=24, main_interpreter=48, main_thread=80,
        next_interpreter=0, number=48, runtime=40, first_thread=16, thread_id=152, native_id=160,
        ring_in_interpreter=112, breaker_in_interpreter=100,
    ),
    (3, 12): Layout(
        _RING_3_12, initialized=16, finalizing=24, main_interpreter=48, main_thread=64,
        next_interpreter=0, number=8, runtime=96, first_thread=72, thread_id=136, native_id=144,
        ring_in_runtime=2016, breaker_in_interpreter=368,
    ),
    (3, 13): Layout(
        _RING_3_13, initialized=600, finalizing=608, main_interpreter=640, main_thread=656,
        next_interpreter=7264, number=7272, runtime=7376, first_thread=7344, thread_id=152, native_id=160,
        ring_in_runtime=2640, breaker_in_thread=24, main_state=664,
        # free_threaded, and places that are in this table too.
        described=(
            (16, 0), (32, 608), (40, 632), (56, 7272), (64, 7264), (72, 7344), (160, 0), (168, 8), (176, 16),
            (192, 152), (200, 160),
        ),
    ),
}  # fmt: skip


class Table(NamedTuple):
    """What the table of the main thread holds at one moment."""

    is_locked: bool
    is_full: bool
    first: int
    end: int
    to_do: int
    is_flagged: bool
    entries: bytes

    def has_room(self) -> bool:
        return not self.is_locked and not self.is_full


class _Anchors(NamedTuple):
    """Addresses that do not change as long as the interpreter runs."""

    interpreter: int
    ring: int
    breaker: int
    lock: int


class PendingCalls:
    """The table of one process.

    Args:
        inner_pid: The number by which the process knows itself.

    Raises:
        UnknownInterpreterError: It is none that this class knows.
    """

    def __init__(
        self, interpreter: Interpreter, memory: ProcessMemory, mappings: MemoryMap, inner_pid: int
    ) -> None:
        layout = LAYOUTS.get(interpreter.version)
        if layout is None or interpreter.runtime is None:
            raise UnknownInterpreterError("its version is not known")
        if platform.machine() not in MACHINES:
            raise UnknownInterpreterError(f"the processor is {platform.machine()}")
        if interpreter.is_debug:
            raise UnknownInterpreterError("it is a debug build")
        if not layout.ring.is_counted and not interpreter.has_semaphores:
            raise UnknownInterpreterError("its locks are no semaphores")
        self._layout = layout
        self._runtime = interpreter.runtime
        self._memory = memory
        self._mappings = mappings
        self._is_semaphore = not layout.ring.is_counted
        self._check_description(interpreter)
        self._anchors = self._find_anchors()
        self._check_main_thread(inner_pid)
        self.read()

    def read(self) -> Table:
        """Return the content; of a process that runs it may be torn.

        Raises:
            UnknownInterpreterError: It cannot be what it should be.
        """
        ring = self._layout.ring
        if self._find_anchors() != self._anchors:
            raise UnknownInterpreterError("its structures have moved")
        content = self._memory.read(self._anchors.ring, ring.size_bytes)
        first, end = _number(content, ring.first, 4), _number(content, ring.end, 4)
        _expect(first < ring.slots and end < ring.slots, "its table has other bounds")
        for place, size, value in ring.constants:
            _expect(_number(content, place, size) == value, "its table has other fields")
        count = (end - first) % ring.slots
        is_locked = self._read_lock(content)
        if not is_locked:
            # A thread that holds the lock may be between two of its writes.
            self._check_entries(content, first, count)
        number = _number(content, ring.to_do, 4)
        _expect(is_locked or number == count if ring.is_counted else number in (0, 1), "its count is wrong")
        return Table(
            is_locked=is_locked,
            is_full=count >= ring.most_entries,
            first=first,
            end=end,
            to_do=number,
            is_flagged=self._read_flag(),
            entries=content[ring.entries : ring.entries + ring.slots * ring.entry_bytes],
        )

    def write_entry(self, table: Table, function: int, argument: int) -> Iterator[tuple[int, bytes]]:
        """Yield the ranges to write for one more call, in their order; the process must be stopped."""
        ring = self._layout.ring
        at = self._anchors.ring
        entry = struct.pack("<QQ", function, argument).ljust(ring.entry_bytes, b"\0")
        yield at + ring.entries + table.end * ring.entry_bytes, entry
        yield at + ring.end, struct.pack("<i", (table.end + 1) % ring.slots)
        yield from self.write_flags(table.to_do + 1 if ring.is_counted else 1)

    def write_flags(self, count: int) -> Iterator[tuple[int, bytes]]:
        """Yield the ranges that make the main thread look into the table; the process must be stopped."""
        yield self._anchors.ring + self._layout.ring.to_do, struct.pack("<i", count)
        if self._layout.breaker_in_thread is None:
            yield self._anchors.breaker, struct.pack("<i", 1)
        else:
            # The upper bits are the version of the instrumentation.
            flags = self._memory.read_number(self._anchors.breaker)
            yield self._anchors.breaker, struct.pack("<Q", flags | _CALLS_TO_DO)

    def is_waiting(self, table: Table, slot: int, argument: int) -> bool:
        """Return whether an entry with this argument is still in a slot."""
        ring = self._layout.ring
        if (slot - table.first) % ring.slots >= (table.end - table.first) % ring.slots:
            return False
        return _number(table.entries, slot * ring.entry_bytes + _POINTER_BYTES, 8) == argument

    def _check_description(self, interpreter: Interpreter) -> None:
        """Compare what an interpreter says of its own structures, since 3.13."""
        if not self._layout.described:
            return
        size = max(place for place, _ in self._layout.described) + 8
        described = self._memory.read(self._runtime, size)
        version = _number(described, 8, 8)
        _expect(described.startswith(_COOKIE), "it does not describe itself")
        _expect((version >> 24, version >> 16 & 0xFF) == interpreter.version, "it is of two versions")
        _expect(_number(described, 16, 8) == 0, "it runs threads without a GIL")
        for place, value in self._layout.described:
            _expect(_number(described, place, 8) == value, "its structures differ")

    def _find_anchors(self) -> _Anchors:
        layout = self._layout
        head = self._memory.read(self._runtime, layout.main_thread + 16)
        if _number(head, layout.initialized, 4) != 1:
            raise UnsettledInterpreterError("its Python is starting")
        if _number(head, layout.finalizing, 8) != 0:
            raise UnsettledInterpreterError("its Python is ending")
        interpreter = self._follow(_number(head, layout.main_interpreter, 8))
        if layout.ring_in_interpreter is not None:
            ring = interpreter + layout.ring_in_interpreter
        else:
            ring = self._runtime + (layout.ring_in_runtime or 0)
        if layout.breaker_in_interpreter is not None:
            breaker = interpreter + layout.breaker_in_interpreter
        else:
            state = self._follow(_number(head, layout.main_state or 0, 8))
            breaker = state + (layout.breaker_in_thread or 0)
        lock = ring + layout.ring.lock
        if self._is_semaphore:
            lock = self._follow(self._memory.read_number(lock))
        return _Anchors(interpreter, ring, breaker, lock)

    def _check_main_thread(self, inner_pid: int) -> None:
        """Follow the pointers of the main interpreter to its threads and back."""
        layout = self._layout
        interpreter = self._anchors.interpreter
        read = self._memory.read_number
        _expect(read(interpreter + layout.number) == 0, "its main interpreter has another number")
        _expect(read(interpreter + layout.next_interpreter) == 0, "its main interpreter is not the first")
        _expect(read(interpreter + layout.runtime) == self._runtime, "its interpreter does not point back")
        main = read(self._runtime + layout.main_thread)
        states = [state for state in self._list_threads() if read(state + layout.thread_id) == main]
        _expect(bool(states), "its main thread is not among its threads")
        if layout.native_id is not None:
            native = {read(state + layout.native_id) for state in states}
            _expect(native == {inner_pid}, "its main thread is not that of the process")
        if layout.main_state is not None:
            _expect(read(self._runtime + layout.main_state) in states, "it has another main thread")

    def _list_threads(self) -> Iterator[int]:
        """Yield the address of the state of each thread, after checking its neighbours."""
        former = 0
        state = self._memory.read_number(self._anchors.interpreter + self._layout.first_thread)
        for _ in range(_MOST_THREADS):
            if state == 0:
                return
            before, after, interpreter = struct.unpack("<QQQ", self._memory.read(self._follow(state), 24))
            _expect(before == former, "its list of threads is broken")
            _expect(interpreter == self._anchors.interpreter, "a thread belongs to another interpreter")
            yield state
            former, state = state, after
        raise UnknownInterpreterError("its list of threads has no end")

    def _read_lock(self, content: bytes) -> bool:
        """Return whether the lock of the table is held, or waited for."""
        if self._is_semaphore:
            # `sem_t` of glibc: the value in the lower half, the number of those who wait in the upper.
            word = self._memory.read_number(self._anchors.lock)
            _expect(word & 0xFFFFFFFF in (0, 1), "its lock has another form")
            return word != 1
        state = content[self._layout.ring.lock]
        _expect(state < 4, "its lock has another form")
        return state != 0

    def _check_entries(self, content: bytes, first: int, count: int) -> None:
        ring = self._layout.ring
        free = bytearray(content[ring.entries : ring.entries + ring.slots * ring.entry_bytes])
        for slot in ((first + it) % ring.slots for it in range(count)):
            at = slot * ring.entry_bytes
            _expect(
                self._mappings.is_code(_number(free, at, 8)), "its table has an entry that is no function"
            )
            free[at : at + ring.entry_bytes] = bytes(ring.entry_bytes)
        if ring.is_cleared:
            _expect(free.count(0) == len(free), "its table is not empty where it should be")
            return
        former = {_number(free, at, 8) for at in range(0, len(free), ring.entry_bytes)} - {0}
        _expect(all(map(self._mappings.is_code, former)), "its table had an entry that is no function")

    def _read_flag(self) -> bool:
        """Return whether the main thread is asked to look into the table."""
        if self._layout.breaker_in_thread is not None:
            return bool(self._memory.read_number(self._anchors.breaker) & _CALLS_TO_DO)
        flag = self._memory.read_number(self._anchors.breaker, 4)
        _expect(flag in (0, 1), "its flag has another form")
        return flag == 1

    def _follow(self, address: int) -> int:
        """Return the address of a structure, after checking that it can be one."""
        is_likely = address % _POINTER_BYTES == 0 and self._mappings.is_writable(address, _POINTER_BYTES)
        _expect(is_likely, "a pointer leads nowhere")
        return address


def _number(content: bytes | bytearray, place: int, size_bytes: int) -> int:
    return int.from_bytes(content[place : place + size_bytes], "little")


def _expect(is_met: bool, otherwise: str) -> None:
    if not is_met:
        raise UnknownInterpreterError(otherwise)
