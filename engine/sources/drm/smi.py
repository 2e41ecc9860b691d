"""What AMD's own library knows and the kernel's files lack: optional, through the package `amdsmi`.

The package is AMD's binding of `libamd_smi.so`, which comes with ROCm. Only calls are made whose structures
have room for what later releases add. Most of what the library knows it reads from the files that
`amd.py` reads; `docs/devices.md` says which of the rest is left out, and why.
"""

import ctypes
import importlib
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

_LIBRARY = "libamd_smi.so"
_MOST_MHZ = 20_000


class SmiReading(NamedTuple):
    """What the library says of one GPU; None where it does not."""

    name: str | None = None
    clock_max_mhz: int | None = None
    memory_clock_max_mhz: int | None = None


class AmdSmi:
    """Asks the library; it is loaded at the first question, and never where that fails.

    Args:
        load: Return the binding, ready for questions, or None.
    """

    def __init__(self, load: Callable[[], ModuleType | None]) -> None:
        self._load = load
        self._binding: ModuleType | None = None
        self._has_loaded = False

    def read(self, pci_address: str) -> SmiReading:
        """Return what it knows of a GPU; may block in the driver."""
        if not self._has_loaded:
            self._has_loaded = True
            self._binding = self._load()
        smi = self._binding
        handle = None if smi is None else _ask(smi.amdsmi_get_processor_handle_from_bdf, pci_address)
        if smi is None or handle is None:
            return SmiReading()
        kinds = smi.AmdSmiClkType
        name = _find(_ask(smi.amdsmi_get_gpu_asic_info, handle), "market_name")
        return SmiReading(
            # The binding's word for nothing, and its device id where the library has no name.
            name if isinstance(name, str) and name != "N/A" and not name.startswith("0x") else None,
            _find_mhz(_ask(smi.amdsmi_get_clock_info, handle, kinds.GFX)),
            _find_mhz(_ask(smi.amdsmi_get_clock_info, handle, kinds.MEM)),
        )

    def close(self) -> None:
        """The next question loads it again."""
        if self._binding is not None:
            _ask(self._binding.amdsmi_shut_down)
        self._binding = None
        self._has_loaded = False


def load_binding() -> ModuleType | None:
    """Return AMD's binding, where it and its library are installed and work."""
    # Without its library the binding prints a sentence to standard output, where data belong.
    if importlib.util.find_spec("amdsmi") is None or not _has_library():
        return None
    try:
        smi = importlib.import_module("amdsmi")
        smi.amdsmi_init()
    except Exception:  # noqa: BLE001 - a binding of another release lacks functions of the library, or has too many
        return None
    return smi


def _has_library() -> bool:
    """Return whether the binding will find its library, at the places where it looks."""
    rocm = os.environ.get("ROCM_HOME", os.environ.get("ROCM_PATH"))
    places = [*([f"{rocm}/lib/{_LIBRARY}"] if rocm else []), _LIBRARY, str(Path("/opt/rocm/lib", _LIBRARY))]
    for place in places:
        try:
            ctypes.CDLL(place)
        except OSError:
            continue
        return True
    return False


def _ask(function: Callable[..., object], *arguments: object) -> object:
    """Return an answer; None for a question that this GPU, driver or release does not answer."""
    try:
        return function(*arguments)
    except Exception:  # noqa: BLE001 - every refusal is an exception of the binding's own, of many classes
        return None


def _find(answer: object, name: str) -> object:
    return answer.get(name) if isinstance(answer, dict) else None


def _find_mhz(answer: object) -> int | None:
    """Return the limit of a clock; the binding says `N/A` for an unsupported one."""
    value = _find(answer, "max_clk")
    return value if isinstance(value, int) and 0 < value <= _MOST_MHZ else None
