"""The source `nvml`: finds the NVIDIA devices of this machine, keyed by UUID."""

import ctypes
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import monotonic

import msgspec
from msgspec.structs import replace

from ...errors import DeviceError, SourceUnavailableError
from ...model import DeviceEvent, DeviceKind, MemoryReading
from ..processes import ProcessTable
from ..source import AbandonableCall, AbandonableThread, CallsInTurn, DeviceDetails, DeviceIdentity
from .driver import Code, NvmlLibrary, make_start_error
from .events import XidEvents
from .missing import KernelGpu, LostReader, find_missing, list_gpu_folders, list_unbound, match_missing
from .reader import NvmlReader, ProcessLists


class HungReader:
    """A GPU whose driver call has hung since the search; no further call is made meanwhile.

    Args:
        since_s: When the call was made, in monotonic seconds.
    """

    def __init__(self, identity: DeviceIdentity, since_s: float) -> None:
        self.identity = identity
        self._since_s = since_s

    def read_memory(self) -> MemoryReading:
        raise self._make_error()

    def read_details(self) -> DeviceDetails:
        raise self._make_error()

    def _make_error(self) -> DeviceError:
        return DeviceError(f"a driver call has not returned for {monotonic() - self._since_s:.0f} s")


# A device whose identity takes longer is left to its thread, and the next one is asked.
DEVICE_DEADLINE_S = 0.3
ENUMERATION_DEADLINE_S = 1.0
# For each device once the enumeration has taken too long.
LEAST_DEADLINE_S = 0.01
# How long to wait for late answers if some came late, or none at all: a driver that nobody keeps loaded
# starts its GPUs when they are first asked for.
PATIENCE_S = 3.0
# NVML_GPU_VIRTUALIZATION_MODE_VGPU: we are a guest and see a share of a GPU.
VIRTUALIZATION_MODE_VGPU = 2

# A GPU and its MIG instances.
_Family = list[NvmlReader]
# Readers of an index, or the code that NVML returned instead.
_Answer = _Family | int


class Enumeration(msgspec.Struct, frozen=True):
    """The devices, in index order."""

    # Lost and hung devices included; one that cannot be named is provisional.
    readers: list[NvmlReader | LostReader | HungReader]
    lost_count: int = 0
    hung_count: int = 0


class DeviceEnumerator:
    """Asks the driver for its devices one by one, on a thread that can be left behind.

    A device is asked by one thread at most: while that hangs, the device is not asked again. A late answer
    counts at the next enumeration.

    Args:
        clock_s: Monotonic seconds, for how often process lists are read.
    """

    def __init__(
        self, library: NvmlLibrary, table: ProcessTable, root: Path, clock_s: Callable[[], float]
    ) -> None:
        self._library = library
        self._table = table
        self._root = root
        self._proc = root / "proc"
        self._clock_s = clock_s
        self._lists = ProcessLists(library)
        self.events = XidEvents(library)
        self._described: dict[str, DeviceIdentity] = {}
        # Identity of each index in this session, MIG instances included.
        self._named: dict[int, list[DeviceIdentity]] = {}
        # Readers given out in this session, by UUID.
        self._readers: dict[str, NvmlReader] = {}
        self._session = 0
        # Addresses of GPUs without a driver; None until they were looked for in this session.
        self._unbound: list[str] | None = None
        # Calls that had not returned when the last enumeration ended, by index.
        self._calls: dict[int, AbandonableCall[_Answer]] = {}

    @property
    def is_hanging(self) -> bool:
        """A thread is inside the driver; the library must not be stopped then."""
        return any(not call.has_returned for call in self._calls.values())

    def enumerate(self) -> Enumeration:
        """Return a reader of every device, also of those that are lost or hang the driver.

        Raises:
            SourceUnavailableError: The driver does not even count its devices.
        """
        count = ctypes.c_uint()
        code = self._library.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        if code != Code.SUCCESS:
            raise make_start_error(code, self._library.explain(code), None, self._proc)
        self._begin_session()
        thread = AbandonableThread("nvml-enumeration")
        try:
            calls = self._ask(thread, count.value)
            answers = {index: call.result() for index, call in calls.items() if call.has_returned}
            self._calls = {index: call for index, call in calls.items() if index not in answers}
            return self._collect(thread, answers)
        finally:
            thread.close()

    def _begin_session(self) -> None:
        """Forget handles of an earlier session; a call that still hangs there hangs all the same."""
        if self._session == self._library.session:
            return
        self._session = self._library.session
        self._named = {}
        self._readers = {}
        self._unbound = None
        self._calls = {index: call for index, call in self._calls.items() if not call.has_returned}

    def _ask(self, thread: AbandonableThread, count: int) -> dict[int, AbandonableCall[_Answer]]:
        """Ask every device; if the driver is slow rather than stuck, give it more time."""
        begun_s = monotonic()
        calls = {index: call for index, call in self._calls.items() if index < count}
        begun = self._ask_in_turn(thread, [index for index in range(count) if index not in calls])
        left_behind = [call for call in begun.values() if not call.has_returned]
        calls.update(begun)
        for index in [index for index in range(count) if index not in calls]:
            left_s = begun_s + ENUMERATION_DEADLINE_S - monotonic()
            deadline_s = max(LEAST_DEADLINE_S, min(DEVICE_DEADLINE_S, left_s))
            calls[index] = call = thread.call(partial(self._find, index), deadline_s)
            if not call.has_returned:
                left_behind.append(call)
        is_slow = any(call.has_returned for call in left_behind)
        if is_slow or not any(call.has_returned for call in calls.values()):
            for call in left_behind:
                call.wait(begun_s + PATIENCE_S - monotonic())
        return calls

    def _ask_in_turn(
        self, thread: AbandonableThread, indexes: list[int]
    ) -> dict[int, AbandonableCall[_Answer]]:
        """Ask devices with one call for all, as far as they answer at once; return those that were begun."""
        calls = {index: AbandonableCall(partial(self._find, index)) for index in indexes}
        turns = CallsInTurn(calls.values())
        thread.call(turns.run, DEVICE_DEADLINE_S)
        not_begun = turns.stop()
        return {index: call for index, call in calls.items() if call not in not_begun}

    def _collect(self, thread: AbandonableThread, answers: dict[int, _Answer]) -> Enumeration:
        """Collect readers in index order, with rows for the devices without one.

        A GPU that this user may not open has no row.
        """
        families = {index: answer for index, answer in answers.items() if isinstance(answer, list)}
        codes = {index: answer for index, answer in answers.items() if isinstance(answer, int)}
        lost = [index for index, code in codes.items() if code != Code.NO_PERMISSION]
        self._named.update({i: [r.identity for r in family] for i, family in families.items()})
        answering = [reader.identity for family in families.values() for reader in family]
        known = {identity.uuid for identity in answering}
        hung = {index: self._named.get(index, []) for index in self._calls}
        named = {i: f for i, f in hung.items() if f and not any(one.uuid in known for one in f)}
        unnamed = [index for index in hung if index not in named]
        answering += [identity for family in named.values() for identity in family]
        missing = self._find_missing(thread, answering)
        matched = match_missing(missing, [*lost, *unnamed])
        usable = [gpu for gpu in missing if gpu.is_usable]
        uncounted = usable if not unnamed and len(usable) > len(lost) else []
        found: dict[int, list[NvmlReader | LostReader | HungReader]] = {i: [*f] for i, f in families.items()}
        for index in () if uncounted else lost:
            gpu = matched.get(index)
            identity = self._recall(index, known) if gpu is None else gpu.identify(index)
            found[index] = [LostReader(identity, codes[index])]
        for index, call in self._calls.items():
            gpu = matched.get(index)
            family = named.get(index) or [_make_stand_in(index) if gpu is None else gpu.identify(index)]
            found[index] = [
                HungReader(replace(identity, is_provisional=True), call.started_s) for identity in family
            ]
        readers = [reader for index in sorted(found) for reader in found[index]]
        # NVML numbers without a gap those that it counts, so the others have numbers after its own.
        first = len(answers) + len(self._calls)
        readers += [LostReader(gpu.identify(first + at), gpu.why) for at, gpu in enumerate(uncounted)]
        startable_count = sum(gpu.has_driver for gpu in uncounted)
        return Enumeration(readers, max(len(lost), startable_count), len(self._calls))

    def _find_missing(self, thread: AbandonableThread, answering: list[DeviceIdentity]) -> list[KernelGpu]:
        """Return the GPUs that the kernel lists and that do not answer; none if that look hangs."""

        def look() -> list[KernelGpu]:
            if self._unbound is None:
                self._unbound = list_unbound(self._root)
            return find_missing(self._root, answering, self._unbound)

        looked = thread.call(look, DEVICE_DEADLINE_S)
        return looked.result() if looked.has_returned else []

    def _recall(self, index: int, known: set[str]) -> DeviceIdentity:
        """Return who had an index the last time and is nowhere else now, or a stand-in."""
        former = (it for it in self._described.values() if it.index == index and it.uuid not in known)
        return next(former, None) or _make_stand_in(index)

    def _find(self, index: int) -> _Answer:
        """Return readers of a GPU and its MIG instances, or the code of why there are none."""
        handle = ctypes.c_void_p()
        code = self._library.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
        if code != Code.SUCCESS:
            return code
        uuid = self._read_uuid(handle)
        if uuid is None:
            return Code.GPU_IS_LOST
        identity = self._identify(handle, uuid, index)
        return [self._make_reader(handle, identity), *self._find_instances(handle, identity)]

    def _make_reader(self, handle: ctypes.c_void_p, identity: DeviceIdentity) -> NvmlReader:
        """Return a reader of a device; the present one, as long as it works."""
        reader = self._readers.get(identity.uuid)
        if reader is None or not reader.is_of(handle, identity):
            reader = self._readers[identity.uuid] = NvmlReader(
                self._library,
                handle,
                identity,
                lists=self._lists,
                table=self._table,
                events=self.events,
                proc=self._proc,
                clock_s=self._clock_s,
            )
        return reader

    def _read_uuid(self, handle: ctypes.c_void_p) -> str | None:
        return self._library.read_text("nvmlDeviceGetUUID", handle)

    def _identify(self, handle: ctypes.c_void_p, uuid: str, index: int) -> DeviceIdentity:
        known = self._described.get(uuid)
        if known is not None and known.index == index:
            return known
        mode = self._library.read_number("nvmlDeviceGetVirtualizationMode", handle)
        kind: DeviceKind = "vgpu" if mode == VIRTUALIZATION_MODE_VGPU else "gpu"
        name = self._library.read_text("nvmlDeviceGetName", handle)
        address = self._library.read_address(handle)
        identity = DeviceIdentity(uuid=uuid, index=index, name=name, kind=kind, pci_address=address)
        self._described[uuid] = identity
        return identity

    def _find_instances(self, parent: ctypes.c_void_p, identity: DeviceIdentity) -> list[NvmlReader]:
        current = ctypes.c_uint()
        pending = ctypes.c_uint()
        references = ctypes.byref(current), ctypes.byref(pending)
        if self._library.call("nvmlDeviceGetMigMode", parent, *references) != Code.SUCCESS:
            return []
        most = self._library.read_number("nvmlDeviceGetMaxMigDeviceCount", parent) if current.value else 0
        found = (self._find_instance(parent, identity, number) for number in range(most or 0))
        return [reader for reader in found if reader is not None]

    def _find_instance(
        self, parent: ctypes.c_void_p, identity: DeviceIdentity, number: int
    ) -> NvmlReader | None:
        handle = ctypes.c_void_p()
        code = self._library.call(
            "nvmlDeviceGetMigDeviceHandleByIndex", parent, ctypes.c_uint(number), ctypes.byref(handle)
        )
        uuid = self._read_uuid(handle) if code == Code.SUCCESS else None
        if uuid is None:
            return None
        instance = DeviceIdentity(
            uuid=uuid,
            index=identity.index,
            name=self._library.read_text("nvmlDeviceGetName", handle),
            kind="mig",
            parent_uuid=identity.uuid,
            mig_index=number,
            gpu_instance_id=self._library.read_number("nvmlDeviceGetGpuInstanceId", handle),
            pci_address=identity.pci_address,
        )
        return self._make_reader(handle, instance)


def _make_stand_in(index: int) -> DeviceIdentity:
    return DeviceIdentity(uuid=f"unknown-nvml-{index}", index=index, is_provisional=True)


RESTART_AFTER_S = 30.0
# Time between two restarts of NVML for a device that stays lost, doubled each time up to the second value:
# starting it takes seconds if no persistence daemon runs.
MOST_RESTART_AFTER_S = 300.0


class NvmlSource:
    """NVIDIA devices through NVML.

    MIG instances follow their GPU as devices of their own with its `parent_uuid`; their memory is part of the
    GPU's, so whoever sums devices skips those with a parent. CUDA_VISIBLE_DEVICES has no effect: a monitor
    shows what is there.
    """

    name = "nvml"

    def __init__(self, root: Path = Path("/"), clock_s: Callable[[], float] = monotonic) -> None:
        self._proc = root / "proc"
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._library = NvmlLibrary(self._proc)
        self._enumerator = DeviceEnumerator(self._library, ProcessTable(root, clock_s), root, clock_s)
        self._gpu_folders: frozenset[str] = frozenset()
        self._restart_due_s = clock_s()
        self._restart_after_s = RESTART_AFTER_S

    def discover(self) -> list[NvmlReader | LostReader | HungReader]:
        """Start NVML if it does not run, and return its devices in index order.

        NVML lists the devices that it found when it was started. It is restarted when it no longer answers,
        when a device is lost, and when the driver knows of more or fewer GPUs than then; earlier readers are
        dead after that. While a call hangs in the driver NVML is not stopped, and the device of that call is
        a reader which says so.

        Raises:
            SourceUnavailableError: There is nothing to measure; the text says why and what to do.
        """
        with self._lock:
            was_open = self._library.is_open
            self._start()
            try:
                found = self._enumerator.enumerate()
            except SourceUnavailableError:
                if not was_open:
                    self._stop()
                    raise
                found = self._restart()
            if self._is_restart_due(found) and was_open:
                found = self._restart()
            if not found.readers and found.lost_count == 0:
                self._stop()
                raise SourceUnavailableError(
                    "The NVIDIA driver runs but reports no device; see `lspci | grep -i nvidia` and "
                    "`dmesg | grep -i nvrm`, or pass the GPUs into this container."
                )
            return found.readers

    def take_events(self) -> list[DeviceEvent]:
        """Return the XIDs that NVML has reported since the last call."""
        return self._enumerator.events.take()

    def close(self) -> None:
        """Stop NVML, unless a call hangs in it."""
        with self._lock:
            self._stop()

    def _start(self) -> None:
        if not self._library.is_open:
            self._library.open()
            self._gpu_folders = list_gpu_folders(self._proc)

    def _stop(self) -> None:
        if not self._enumerator.is_hanging:
            self._library.close()

    def _is_restart_due(self, found: Enumeration) -> bool:
        has_changed = found.lost_count > 0 or list_gpu_folders(self._proc) != self._gpu_folders
        if not has_changed:
            self._restart_after_s = RESTART_AFTER_S
        return has_changed and self._clock_s() >= self._restart_due_s and not self._enumerator.is_hanging

    def _restart(self) -> Enumeration:
        self._restart_due_s = self._clock_s() + self._restart_after_s
        self._restart_after_s = min(2 * self._restart_after_s, MOST_RESTART_AFTER_S)
        self._stop()
        self._start()
        try:
            return self._enumerator.enumerate()
        except SourceUnavailableError:
            self._stop()
            raise
