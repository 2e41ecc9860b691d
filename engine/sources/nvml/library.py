"""The loaded NVML library: started, stopped, and its functions called with plain ctypes.

`pynvml` finds and loads the library; the calls that are made ten times a second go to its function
pointers directly, because its wrappers make a new struct and an exception object on every call.
"""

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ...errors import SourceUnavailableError
from .codes import Code, make_start_error

NvmlFunction = Callable[..., int]
"""A function of the library; returns a `Code`."""

TEXT_BYTES = 96


class LibraryDescription(msgspec.Struct, frozen=True):
    """What was loaded, for people who ask why nothing is found."""

    module_file: str | None = None
    """File of the Python module `pynvml`; several distributions ship one of that name."""
    library_file: str | None = None
    """File that the loader took for libnvidia-ml.so.1."""
    nvml_version: str | None = None
    driver_version: str | None = None
    cuda_version: str | None = None
    """Newest CUDA version that the driver serves."""


class NvmlLibrary:
    """NVML in this process.

    Args:
        proc: Where the proc file system is mounted.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self.is_open = False
        self.session = 0
        """Counts how often it was started; a handle is good for the session that gave it out."""
        self._proc = proc
        self._functions: dict[str, NvmlFunction | None] = {}

    def open(self) -> None:
        """Load the library and start it.

        Raises:
            SourceUnavailableError: It could not; the text says why and what to do.
        """
        if self.is_open:
            return
        pynvml = _import_pynvml()
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            code = int(error.value)
            raise make_start_error(code, str(error), self._nvml_version(), self._proc) from error
        self.is_open = True
        self.session += 1

    def close(self) -> None:
        """Stop the library; handles that it gave out are dead then."""
        if not self.is_open:
            return
        self.is_open = False
        pynvml = _import_pynvml()
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError:
            return  # a driver that was unloaded under us has nothing left to give back

    def find(self, name: str) -> NvmlFunction | None:
        """Return a function of the library, or None where the installed driver lacks it."""
        if name not in self._functions:
            pynvml = _import_pynvml()
            try:
                self._functions[name] = pynvml._nvmlGetFunctionPointer(name)
            except pynvml.NVMLError as error:
                if error.value == Code.UNINITIALIZED:  # no library is loaded; one may be later
                    return None
                self._functions[name] = None
        return self._functions[name]

    def call(self, name: str, *arguments: object) -> int:
        """Call a function and return its code; FUNCTION_NOT_FOUND where the driver lacks it."""
        function = self.find(name)
        return Code.FUNCTION_NOT_FOUND if function is None else function(*arguments)

    def read_text(self, name: str, *arguments: object) -> str | None:
        """Call a function that fills a text buffer, and return the text; None where it failed."""
        buffer = ctypes.create_string_buffer(TEXT_BYTES)
        if self.call(name, *arguments, buffer, ctypes.c_uint(TEXT_BYTES)) != Code.SUCCESS:
            return None
        return buffer.value.decode("utf-8", errors="replace")

    def read_number(self, name: str, *arguments: object) -> int | None:
        """Call a function that writes an unsigned number, and return it; None where it failed."""
        number = ctypes.c_uint()
        return number.value if self.call(name, *arguments, ctypes.byref(number)) == Code.SUCCESS else None

    def explain(self, code: int) -> str:
        """Return NVML's own words for a code."""
        return str(_import_pynvml().NVMLError(code))

    def describe(self) -> LibraryDescription:
        """Return what was loaded, as far as it can be told without starting it."""
        try:
            module_file: str | None = _import_pynvml().__file__
        except SourceUnavailableError:
            return LibraryDescription()
        cuda = self.read_number("nvmlSystemGetCudaDriverVersion_v2")
        return LibraryDescription(
            module_file=module_file,
            library_file=self._find_library_file(),
            nvml_version=self._nvml_version(),
            driver_version=self.read_text("nvmlSystemGetDriverVersion") if self.is_open else None,
            cuda_version=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        )

    def _nvml_version(self) -> str | None:
        return self.read_text("nvmlSystemGetNVMLVersion")

    def _find_library_file(self) -> str | None:
        """Return the mapped file; the loader alone knows which of several copies it took."""
        try:
            maps = (self._proc / "self/maps").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        paths = (line.split(maxsplit=5)[-1] for line in maps.splitlines() if "libnvidia-ml.so" in line)
        return next(paths, None)


def _import_pynvml() -> Any:  # noqa: ANN401 - the module carries no types
    """Return the module `pynvml` of nvidia-ml-py; importing it costs 17 ms and 4 MiB, so it is deferred."""
    try:
        import pynvml
    except ImportError as error:
        raise SourceUnavailableError(
            "The Python module pynvml is not installed; install it with `pip install nvidia-ml-py`."
        ) from error
    if not hasattr(pynvml, "_nvmlGetFunctionPointer"):
        raise SourceUnavailableError(
            f"Another package than nvidia-ml-py provides the module pynvml ({pynvml.__file__}); "
            "run `pip uninstall pynvml py3nvml; pip install --force-reinstall nvidia-ml-py`."
        )
    return pynvml
