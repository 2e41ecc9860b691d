"""The source `nvml`: finds the NVIDIA devices of this machine, keyed by UUID."""

import ctypes
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

from ...errors import SourceUnavailableError
from ...model import DeviceKind
from ..processes import ProcessTable
from ..source import DeviceIdentity
from .codes import Code, make_start_error
from .library import LibraryDescription, NvmlLibrary
from .lost import LostReader, find_lost_identities, list_gpu_folders
from .reader import NvmlReader
from .running import ProcessLists

RESTART_AFTER_S = 30.0
MOST_RESTART_AFTER_S = 300.0
"""Time between two restarts of NVML for a device that stays lost, doubled each time up to the second figure:
starting it costs seconds where no persistence daemon runs."""
VIRTUALIZATION_MODE_VGPU = 2
"""NVML_GPU_VIRTUALIZATION_MODE_VGPU: we are a guest and see a share of a GPU."""


class NvmlSource:
    """NVIDIA devices through NVML.

    MIG instances follow their GPU as devices of their own with its `parent_uuid`; their memory is part of
    the GPU's, so whoever sums devices skips those with a parent. CUDA_VISIBLE_DEVICES has no effect: a
    monitor shows what is there.

    Args:
        root: Where the machine's /proc is found.
        clock_s: Monotonic seconds.
    """

    name = "nvml"

    def __init__(self, root: Path = Path("/"), clock_s: Callable[[], float] = monotonic) -> None:
        self._proc = root / "proc"
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._library = NvmlLibrary(self._proc)
        self._lists = ProcessLists(self._library)
        self._table = ProcessTable(root)
        self._identities: dict[str, DeviceIdentity] = {}
        self._gpu_folders: frozenset[str] = frozenset()
        self._restart_due_s = clock_s()
        self._restart_after_s = RESTART_AFTER_S

    def discover(self) -> list["NvmlReader | LostReader"]:
        """Start NVML where it does not run, and return its devices in index order.

        NVML lists the devices that it found when it was started. It is started anew when it answers
        nothing any more, when a device is lost, and when the driver knows of more or fewer GPUs than then;
        the readers that were given out before are dead after that.

        Raises:
            SourceUnavailableError: There is nothing to measure; the text says why and what to do.
        """
        with self._lock:
            was_open = self._library.is_open
            self._start()
            try:
                readers, lost_count = self._enumerate()
            except SourceUnavailableError:
                if not was_open:
                    self._library.close()
                    raise
                readers, lost_count = self._restart()
            has_changed = lost_count > 0 or list_gpu_folders(self._proc) != self._gpu_folders
            if not has_changed:
                self._restart_after_s = RESTART_AFTER_S
            elif was_open and self._clock_s() >= self._restart_due_s:
                readers, lost_count = self._restart()
            if not readers and lost_count == 0:
                self._library.close()
                raise SourceUnavailableError(
                    "The NVIDIA driver runs but reports no device; see `lspci | grep -i nvidia` and "
                    "`dmesg | grep -i nvrm`, or pass the GPUs into this container."
                )
            known = {reader.identity.uuid for reader in readers}
            return [*readers, *map(LostReader, find_lost_identities(self._proc, known, lost_count))]

    def close(self) -> None:
        """Stop NVML."""
        with self._lock:
            self._library.close()

    def describe(self) -> LibraryDescription:
        """Return which library was loaded and of which versions; None where nothing was."""
        return self._library.describe()

    def _start(self) -> None:
        if not self._library.is_open:
            self._library.open()
            self._gpu_folders = list_gpu_folders(self._proc)

    def _restart(self) -> tuple[list[NvmlReader], int]:
        self._restart_due_s = self._clock_s() + self._restart_after_s
        self._restart_after_s = min(2 * self._restart_after_s, MOST_RESTART_AFTER_S)
        self._library.close()
        self._start()
        try:
            return self._enumerate()
        except SourceUnavailableError:
            self._library.close()
            raise

    def _enumerate(self) -> tuple[list[NvmlReader], int]:
        """Return a reader of every device that answers, and how many are lost."""
        count = ctypes.c_uint()
        code = self._library.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        if code != Code.SUCCESS:
            raise make_start_error(code, self._library.explain(code), None, self._proc)
        readers: list[NvmlReader] = []
        lost_count = 0
        for index in range(count.value):
            handle = ctypes.c_void_p()
            code = self._library.call(
                "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle)
            )
            uuid = self._read_uuid(handle) if code == Code.SUCCESS else None
            if uuid is None:
                lost_count += 1
                continue
            reader = self._make_reader(handle, self._identify(handle, uuid, index))
            readers += [reader, *self._find_instances(handle, reader.identity)]
        return readers, lost_count

    def _make_reader(self, handle: ctypes.c_void_p, identity: DeviceIdentity) -> NvmlReader:
        return NvmlReader(
            self._library, handle, identity, lists=self._lists, table=self._table, proc=self._proc
        )

    def _read_uuid(self, handle: ctypes.c_void_p) -> str | None:
        return self._library.read_text("nvmlDeviceGetUUID", handle)

    def _identify(self, handle: ctypes.c_void_p, uuid: str, index: int) -> DeviceIdentity:
        known = self._identities.get(uuid)
        if known is not None and known.index == index:
            return known
        mode = self._library.read_number("nvmlDeviceGetVirtualizationMode", handle)
        kind: DeviceKind = "vgpu" if mode == VIRTUALIZATION_MODE_VGPU else "gpu"
        name = self._library.read_text("nvmlDeviceGetName", handle)
        identity = DeviceIdentity(uuid=uuid, index=index, name=name, kind=kind)
        self._identities[uuid] = identity
        return identity

    def _find_instances(self, parent: ctypes.c_void_p, identity: DeviceIdentity) -> Iterator[NvmlReader]:
        current, pending = ctypes.c_uint(), ctypes.c_uint()
        references = ctypes.byref(current), ctypes.byref(pending)
        if self._library.call("nvmlDeviceGetMigMode", parent, *references) != Code.SUCCESS:
            return
        if not current.value:
            return
        most = self._library.read_number("nvmlDeviceGetMaxMigDeviceCount", parent) or 0
        for number in range(most):
            handle = ctypes.c_void_p()
            code = self._library.call(
                "nvmlDeviceGetMigDeviceHandleByIndex", parent, ctypes.c_uint(number), ctypes.byref(handle)
            )
            uuid = self._read_uuid(handle) if code == Code.SUCCESS else None
            if uuid is None:
                continue
            instance = DeviceIdentity(
                uuid=uuid,
                index=identity.index,
                name=self._library.read_text("nvmlDeviceGetName", handle),
                kind="mig",
                parent_uuid=identity.uuid,
                mig_index=number,
            )
            yield self._make_reader(handle, instance)
