"""XIDs as NVML reports them: to every user, also where the kernel's log is for root alone.

NVML queues them for an event set from the moment at which a device is registered with it, and is asked
without waiting. It reports the number of an XID and its device, and no time.
"""

import ctypes
import threading
import time
from collections import deque
from typing import ClassVar

from ...model import DeviceEvent
from ..source import DeviceIdentity
from .driver import Code, NvmlFunction, NvmlLibrary

# `nvmlEventTypeXidCriticalError`.
_XID = 0x8
# One question returns one event; the rest stays queued for the next round.
_MOST_EVENTS = 64


class _EventData(ctypes.Structure):
    """`nvmlEventData_t`."""

    device: int | None
    event_data: int
    _fields_: ClassVar = [
        ("device", ctypes.c_void_p),
        ("event_type", ctypes.c_ulonglong),
        ("event_data", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class XidEvents:
    """The queue of all devices of a library; `watch` and `ask` are for one thread, `take` is for any."""

    def __init__(self, library: NvmlLibrary) -> None:
        self._library = library
        self._lock = threading.Lock()
        self._found: deque[DeviceEvent] = deque(maxlen=_MOST_EVENTS)
        self._session = 0
        self._set: ctypes.c_void_p | None = None
        # By handle; a session gives out its own.
        self._identities: dict[int, DeviceIdentity] = {}
        self._wait: NvmlFunction | None = None

    def watch(self, handle: ctypes.c_void_p, identity: DeviceIdentity) -> None:
        """Register a device, once in a session; one that refuses is not asked about again."""
        if self._session != self._library.session:
            self._begin_session()
        key = handle.value
        if self._set is None or key is None or key in self._identities or identity.parent_uuid is not None:
            return
        self._identities[key] = identity
        self._library.call("nvmlDeviceRegisterEvents", handle, ctypes.c_ulonglong(_XID), self._set)

    def ask(self) -> None:
        """Take what is queued; never waits."""
        if self._set is None or self._wait is None or self._session != self._library.session:
            return
        data = _EventData()
        for _ in range(_MOST_EVENTS):
            if self._wait(self._set, ctypes.byref(data), ctypes.c_uint(0)) != Code.SUCCESS:
                return
            identity = self._identities.get(data.device or 0)
            event = DeviceEvent(
                time_s=time.time(),
                kind="xid",
                source="nvml",
                device_uuid=None if identity is None else identity.uuid,
                pci_address=None if identity is None else identity.pci_address,
                code=data.event_data,
            )
            with self._lock:
                self._found.append(event)

    def take(self) -> list[DeviceEvent]:
        """Return what was found since the last call."""
        if not self._found:
            return []
        with self._lock:
            found = list(self._found)
            self._found.clear()
        return found

    def _begin_session(self) -> None:
        """Make a set; that of an earlier session went with it."""
        self._session = self._library.session
        self._identities = {}
        made = ctypes.c_void_p()
        is_made = self._library.call("nvmlEventSetCreate", ctypes.byref(made)) == Code.SUCCESS
        self._set = made if is_made else None
        self._wait = self._library.find("nvmlEventSetWait_v2") or self._library.find("nvmlEventSetWait")
