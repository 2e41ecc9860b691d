"""Finds the devices of the open library; one that hangs the driver costs its own row only."""

import ctypes
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import monotonic

import msgspec
from msgspec.structs import replace

from ...model import DeviceKind
from ..abandonment import AbandonableCall, AbandonableThread, CallsInTurn
from ..processes import ProcessTable
from ..source import DeviceIdentity
from .codes import Code, make_start_error
from .library import NvmlLibrary
from .missing import HungReader, LostReader, find_missing_identities
from .reader import NvmlReader
from .running import ProcessLists

DEVICE_DEADLINE_S = 0.3
"""A device whose identity takes longer is left to its thread, and the next one is asked."""
ENUMERATION_DEADLINE_S = 1.0
LEAST_DEADLINE_S = 0.01
"""What each device still gets once the enumeration has taken too long."""
PATIENCE_S = 3.0
"""How long late answers are waited for where some came late, or none at all: a driver that nobody keeps
loaded starts its GPUs when they are first asked for."""
VIRTUALIZATION_MODE_VGPU = 2
"""NVML_GPU_VIRTUALIZATION_MODE_VGPU: we are a guest and see a share of a GPU."""

_Family = list[NvmlReader]
"""A GPU and its MIG instances."""
_Answer = _Family | int
"""What was found under an index, or the code that NVML returned instead."""


class Enumeration(msgspec.Struct, frozen=True):
    """What is there, in index order."""

    readers: list[NvmlReader | LostReader | HungReader]
    """Lost and hung devices included; one that cannot be named is provisional."""
    lost_count: int = 0
    hung_count: int = 0


class DeviceEnumerator:
    """Asks the driver for its devices one by one, on a thread that can be left behind.

    A device is asked by one thread at most: while that hangs, the device is not asked again. What it says
    when it returns at last counts at the next enumeration.

    Args:
        library: The library, open whenever something is enumerated.
        table: Knows user and command of a pid.
        proc: Where the proc file system is mounted.
        clock_s: Monotonic seconds, for how often process lists are read.
    """

    def __init__(
        self, library: NvmlLibrary, table: ProcessTable, proc: Path, clock_s: Callable[[], float]
    ) -> None:
        self._library, self._table, self._proc, self._clock_s = library, table, proc, clock_s
        self._lists = ProcessLists(library)
        self._described: dict[str, DeviceIdentity] = {}
        self._named: dict[int, list[DeviceIdentity]] = {}
        """Who each index was in this session, MIG instances included."""
        self._readers: dict[str, NvmlReader] = {}
        """Those that were given out in this session, by UUID."""
        self._session = 0
        self._calls: dict[int, AbandonableCall[_Answer]] = {}
        """Calls that had not returned when the last enumeration ended, by index."""

    @property
    def is_hanging(self) -> bool:
        """Whether a thread is inside the driver; the library must not be stopped then."""
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
            return self._gather(thread, answers)
        finally:
            thread.close()

    def _begin_session(self) -> None:
        """Forget handles of an earlier session; a call that still hangs there hangs all the same."""
        if self._session == self._library.session:
            return
        self._session = self._library.session
        self._named, self._readers = {}, {}
        self._calls = {index: call for index, call in self._calls.items() if not call.has_returned}

    def _ask(self, thread: AbandonableThread, count: int) -> dict[int, AbandonableCall[_Answer]]:
        """Ask every device; where the driver is slow rather than stuck, give it more time."""
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

    def _gather(self, thread: AbandonableThread, answers: dict[int, _Answer]) -> Enumeration:
        """Put readers together in index order, with rows for the devices that gave none.

        A GPU that this user may not open is none of theirs and has no row.
        """
        families = {index: answer for index, answer in answers.items() if isinstance(answer, list)}
        codes = {index: answer for index, answer in answers.items() if isinstance(answer, int)}
        lost = [index for index, code in codes.items() if code != Code.NO_PERMISSION]
        self._named.update({i: [r.identity for r in family] for i, family in families.items()})
        known = {reader.identity.uuid for family in families.values() for reader in family}
        missing = self._identify_missing(thread, known, lost)
        found: dict[int, list[NvmlReader | LostReader | HungReader]] = {i: [*f] for i, f in families.items()}
        for index in lost:
            found[index] = [
                LostReader(identity, codes[index])
                for identity in missing.get(index) or [self._recall(index, known)]
            ]
        for index, call in self._calls.items():
            found[index] = [
                HungReader(replace(identity, is_provisional=True), call.started_s)
                for identity in missing.get(index, [_make_stand_in(index)])
            ]
        readers = [reader for index in sorted(found) for reader in found[index]]
        return Enumeration(readers, lost_count=len(lost), hung_count=len(self._calls))

    def _identify_missing(
        self, thread: AbandonableThread, known: set[str], lost: list[int]
    ) -> dict[int, list[DeviceIdentity]]:
        """Return who the devices are that did not say so, as far as that is certain, by index."""
        hung = {index: self._named.get(index, []) for index in self._calls}
        named = {i: f for i, f in hung.items() if f and not any(one.uuid in known for one in f)}
        unnamed = [*lost, *(index for index in hung if index not in named)]
        if unnamed:
            known = known | {identity.uuid for family in named.values() for identity in family}
            looked = thread.call(
                lambda: find_missing_identities(self._proc, known, unnamed), DEVICE_DEADLINE_S
            )
            told = looked.result() if looked.has_returned else []
            named.update({identity.index: [identity] for identity in told})
        return named

    def _recall(self, index: int, known: set[str]) -> DeviceIdentity:
        """Return who had an index the last time and is nowhere else now; a stand-in where nobody did."""
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
        """Return a reader of a device; the one that there is, as long as it is good."""
        reader = self._readers.get(identity.uuid)
        if reader is None or not reader.is_of(handle, identity):
            reader = self._readers[identity.uuid] = NvmlReader(
                self._library,
                handle,
                identity,
                lists=self._lists,
                table=self._table,
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
        identity = DeviceIdentity(uuid=uuid, index=index, name=name, kind=kind)
        self._described[uuid] = identity
        return identity

    def _find_instances(self, parent: ctypes.c_void_p, identity: DeviceIdentity) -> list[NvmlReader]:
        current, pending = ctypes.c_uint(), ctypes.c_uint()
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
        )
        return self._make_reader(handle, instance)


def _make_stand_in(index: int) -> DeviceIdentity:
    """Return who stands in for a GPU that has not said who it is."""
    return DeviceIdentity(uuid=f"unknown-nvml-{index}", index=index, is_provisional=True)
