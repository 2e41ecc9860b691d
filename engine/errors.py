"""Every error that vramscope raises on purpose.

VramscopeError                 the root; carries the exit code of its class
├── UsageError                 a wrong flag, setting or value            (2)
│   ├── SettingError           names settings as its reader knows them   (2)
│   └── NothingFitsError       nothing stays within a limit              (0)
├── InputFileError             a file that cannot be read or understood  (2)
├── OutputFileError            a file or folder that cannot be written   (2)
├── SourceUnavailableError     nothing to measure with                   (4)
│   ├── LibraryMissingError    libnvidia-ml.so.1 was not found           (4)
│   ├── DriverNotLoadedError   the library is there, the driver is not   (5)
│   ├── DriverMismatchError    library and driver versions differ        (5)
│   └── AccessDeniedError      the driver refused this user              (6)
├── DeviceError                one call on one device failed             (1)
│   ├── NotSupportedError      the device does not know this field
│   ├── DeviceLostError        the device fell off the bus
│   └── DeviceDeniedError      the driver refused this user this call
├── RuntimeFolderError         the private runtime folder is unsafe      (6)
├── ReadOnlyError              read_only is set, and this would change something (6)
├── HubTakenError              another agent holds the runtime folder    (2)
├── HubUnreachableError        no agent answered                         (7)
├── ServerUnreachableError     no Prometheus or server of models answered (7)
├── AttachRefusedError         a process that must not be attached to    (6)
│   └── UnknownInterpreterError  its Python differs from those that the injector knows
├── PackageMissingError        a package of an extra is not installed    (4)
├── DebuggerMissingError       attaching needs gdb, and there is none    (4)
├── ProbeSilentError           a probe was started and does not report   (7)
└── WireError                  a message that cannot be accepted         (1)
"""

from typing import ClassVar, Literal, NamedTuple, Union


class Setting(NamedTuple):
    """A setting in the text of an error, which each surface calls by the name that its users know."""

    flag: str
    """On a command line, such as `--seq`."""
    argument: str = ""
    """What functions in Python call it, where that is not the word of the flag."""

    @property
    def word(self) -> str:
        """The flag as a name of an argument, as tools of MCP have it: `micro_batch` for `--micro-batch`."""
        return self.flag.lstrip("-").replace("-", "_")

    @property
    def name(self) -> str:
        return self.argument or self.word


ErrorPart = Union[str, Setting]  # noqa: UP007 - workloads run on Python 3.9
Naming = Literal["name", "flag", "word"]


class VramscopeError(Exception):
    """The root of all errors a user may read: what, where, what was expected, what to do."""

    exit_code: ClassVar[int] = 1

    def describe(self, naming: Naming) -> str:
        """Return the text, with settings named as one kind of reader knows them.

        Args:
            naming: `name` for a caller in Python, as `str` does; `flag` for a command line; `word` for MCP.
        """
        return str(self)


class UsageError(VramscopeError):
    """A flag, setting or value that cannot be used."""

    exit_code = 2


class SettingError(UsageError):
    """Settings that cannot be used; its arguments are the parts of the text.

    For code that the command line, tools of MCP and programs call. `str` names settings as a program does.
    """

    def __str__(self) -> str:
        return self.describe("name")

    def describe(self, naming: Naming) -> str:
        return "".join(it if isinstance(it, str) else getattr(it, naming) for it in self.args)


class NothingFitsError(UsageError):
    """Nothing stays within a limit that was given: an answer, which says what would, and no mistake.

    The exit code is 3 with `--fail-on unfit`. `assumed` is what was taken that neither flags nor files say.
    """

    exit_code = 0

    def __init__(self, *args: str, assumed: tuple[str, ...] = ()) -> None:
        super().__init__(*args)
        self.assumed = assumed


class InputFileError(VramscopeError):
    """A file that cannot be read or understood; the text names file, position and expectation."""

    exit_code = 2


class OutputFileError(VramscopeError):
    """A file or folder that cannot be written; the text names it, the reason and what to do."""

    exit_code = 2


class SourceUnavailableError(VramscopeError):
    """A source has nothing to measure; the text is one sentence with what to do."""

    exit_code = 4


class LibraryMissingError(SourceUnavailableError):
    """The NVIDIA management library was not found."""


class DriverNotLoadedError(SourceUnavailableError):
    """The NVIDIA management library is present, its kernel driver is not loaded."""

    exit_code = 5


class DriverMismatchError(SourceUnavailableError):
    """The NVIDIA management library and the loaded driver are of different versions (NVML error 18)."""

    exit_code = 5


class AccessDeniedError(SourceUnavailableError):
    """The driver refused this user."""

    exit_code = 6


class DeviceError(VramscopeError):
    """One call on one device failed."""


class NotSupportedError(DeviceError):
    """The device does not support the field that was asked for."""


class DeviceLostError(DeviceError):
    """The device fell off the bus or was removed; its handle is dead."""


class DeviceDeniedError(DeviceError):
    """The driver refused this user one call on one device."""


class RuntimeFolderError(VramscopeError):
    """The private runtime folder belongs to another user or is open to others."""

    exit_code = 6


class ReadOnlyError(VramscopeError):
    """Settings forbid changes from here; the text names the change and the setting's source."""

    exit_code = 6


class HubTakenError(VramscopeError):
    """Another agent already holds the runtime folder."""

    exit_code = 2


class HubUnreachableError(VramscopeError):
    """No agent answered where one was expected."""

    exit_code = 7


class ServerUnreachableError(VramscopeError):
    """A server of Prometheus or of models did not answer, or not as such a server does."""

    exit_code = 7


class AttachRefusedError(VramscopeError):
    """The probe must not be brought into a process; the text says what would permit it."""

    exit_code = 6


class UnknownInterpreterError(AttachRefusedError):
    """The Python of a process differs from those that the injector knows; gdb may do it all the same."""


class PackageMissingError(VramscopeError):
    """A package that an extra of ours brings is not installed; the text names the extra."""

    exit_code = 4


class DebuggerMissingError(VramscopeError):
    """Attaching to this process needs a debugger, which is not installed."""

    exit_code = 4


class ProbeSilentError(VramscopeError):
    """The probe was sent to a process, but no agent has received anything from it."""

    exit_code = 7


class WireError(VramscopeError):
    """A message from a peer that is too large, malformed or of an unknown newer version."""


class WireVersionError(WireError):
    """The other end speaks another version of the protocol."""
