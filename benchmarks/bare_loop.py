"""The least that reading memory ten times a second costs: `python -m benchmarks.bare_loop`.

A loop of ctypes calls and nothing else; the cost of an agent is compared with it in the same run.
"""

import ctypes
import time

INTERVAL_S = 0.1


class Memory(ctypes.Structure):
    """Memory of a device as the driver reports it, in bytes (`nvmlMemory_t`)."""

    _fields_ = [
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


def main() -> None:
    """Read until killed."""
    library = ctypes.CDLL("libnvidia-ml.so.1")
    library.nvmlInit_v2()
    count, memory = ctypes.c_uint(), Memory()
    library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    handles = [ctypes.c_void_p() for _ in range(count.value)]
    for index, handle in enumerate(handles):
        library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
    due_s = time.monotonic()
    while True:
        for handle in handles:
            library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
        due_s += INTERVAL_S
        time.sleep(max(0.0, due_s - time.monotonic()))


if __name__ == "__main__":
    main()
