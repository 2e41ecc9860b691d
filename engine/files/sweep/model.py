"""Reads the lists that a sweep keeps: which configurations were tried, which succeeded and which failed."""

import os
import re
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from ...errors import InputFileError
from ...text import make_printable
from ..base.input_file import explain_refusal, open_input_file, read_input_file, show_name, show_path
from ..memory_trace.reading import logged_bytes

# From the sweep's own lists, by the exit status alone; `started` is in no other list.
Outcome = Literal["success", "failed", "started"]


class SweepTrace(msgspec.Struct, frozen=True, gc=False):
    """The rank of a configuration that used most, and the iteration in which it did."""

    path: Path
    rank: int
    # How many ranks of the configuration have a trace.
    ranks: int
    modified_ns: int
    peak_allocated_bytes: int | None = None
    theoretical_bytes: int | None = None
    static_bytes: int | None = None
    # Iteration of the peak.
    iteration: int = 0
    # How many iterations of its trace have a peak.
    iterations: int = 1


class ConfigurationLog(msgspec.Struct, frozen=True, gc=False):
    """A configuration's own log (`global_rank_0.log`); None is not in it."""

    path: Path
    is_out_of_memory: bool = False
    # The line by which it failed.
    cause: str | None = None
    iteration_s: float | None = None
    tflops_per_gpu: float | None = None
    peak_allocated_bytes: int | None = None
    theoretical_bytes: int | None = None
    # Weights and optimizer, and activations, by the theory.
    states_bytes: int | None = None
    activations_bytes: int | None = None


class SweepConfiguration(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    tp: int
    pp: int
    dp: int | None = None
    outcome: Outcome | None = None
    exit_status: int | None = None
    trace: SweepTrace | None = None
    log: ConfigurationLog | None = None
    # One GPU played each rank; None without a trace. A real and a simulated run are two.
    is_simulated: bool | None = None


class SkippedFile(msgspec.Struct, frozen=True):
    path: Path
    reason: str


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """All configurations of a sweep, in order of TP, PP and DP."""

    # Folder of the traces; None if there are only logs.
    memory_dir: Path | None = None
    log_dir: Path | None = None
    # By the names of all traces, one GPU played each rank; None if they do not say.
    is_simulated: bool | None = None
    # When the newest trace, or list, was written.
    modified_ns: int | None = None
    # The size label in the name of the log folder, such as `485`; None if the traces are of another.
    model: str | None = None
    world_size: int | None = None
    layers: int | None = None
    heads: int | None = None
    configurations: tuple[SweepConfiguration, ...] = ()
    # What does not fit together, and which of several files were used.
    notes: tuple[str, ...] = ()
    skipped: tuple[SkippedFile, ...] = ()


_MODEL = re.compile(r"([0-9]+(?:[.,][0-9]+)?[bt])(?=_|$)", re.IGNORECASE)


def find_model_in_name(folder: Path) -> str | None:
    """Return the size label that the name of a folder begins with."""
    match = _MODEL.match(folder.resolve().name)
    return None if match is None else match[1]


def is_same_model(one: str, other: str) -> bool:
    """Return whether two size labels name one model: `485B`, `485b` and `485` do."""
    return normalize_model(one) == normalize_model(other)


def normalize_model(model: str) -> str:
    """Return equal labels in an equal form."""
    return model.upper().replace(",", ".").removesuffix("B")


FOLDER_NAME = "CONFIG_SWEEP_WS{world size}_{model}_{date}_{time}"
_FOLDER = re.compile(r"CONFIG_SWEEP_WS([0-9]{1,9})_(.+)_([0-9]{8}_[0-9]{6})")
# In order of weight: a later list overrules an earlier one.
_LISTS: tuple[tuple[str, Outcome], ...] = (
    ("config_combinations.log", "started"),
    ("failed_configs.log", "failed"),
    ("successful_configs.log", "success"),
)
# A folder with one of these is that of a sweep's logs.
LIST_NAMES = frozenset(name for name, _ in _LISTS)
_LIMIT_BYTES = 64 << 20
_TP, _PP, _DP = (re.compile(rf"\b{key}=([0-9]{{1,9}})\b") for key in ("TP", "PP", "DP"))
_STATUS = re.compile(r"\(status: (-?[0-9]{1,9})\)")
_SETTING = re.compile(
    r"^[^\S\n]*+(Number of Layers|Number of Attention Heads): *([0-9]{1,9})[^\S\n]*+$", re.MULTILINE
)


class FolderName(NamedTuple):
    world_size: int
    model: str
    date: str


class LogEntry(NamedTuple):
    outcome: Outcome
    exit_status: int | None


class SweepLogs(NamedTuple):
    folder: Path
    name: FolderName | None
    entries: dict[tuple[int, int, int | None], LogEntry]
    layers: int | None
    heads: int | None
    notes: list[str]
    # When the newest list was written.
    modified_ns: int | None = None

    def list_outcome(self, outcome: Outcome) -> set[tuple[int, int, int | None]]:
        return {layout for layout, entry in self.entries.items() if entry.outcome == outcome}


def parse_folder_name(name: str) -> FolderName | None:
    match = _FOLDER.fullmatch(name)
    return None if match is None else FolderName(int(match[1]), match[2], match[3])


def read_logs(folder: Path) -> SweepLogs:
    notes: list[str] = []
    entries: dict[tuple[int, int, int | None], LogEntry] = {}
    written_ns: list[int] = []
    for file_name, outcome in _LISTS:
        path = folder / file_name
        if path.exists():
            _read_list(path, outcome, entries, notes)
            written_ns += _find_modified(path)
        elif outcome != "started":
            notes.append(f"{show_name(folder)} has no {file_name}")
    layers, heads = _read_settings(folder / "summary.log", notes)
    name = parse_folder_name(folder.resolve().name)
    return SweepLogs(folder, name, entries, layers, heads, notes, max(written_ns, default=None))


def _find_modified(path: Path) -> list[int]:
    """Return when a file was written; empty where it has been removed since."""
    try:
        return [path.stat().st_mtime_ns]
    except OSError:
        return []


def find_log_folders(folder: Path) -> list[Path]:
    """Return a folder of logs itself, or the folders of logs right below it, by name."""
    try:
        names = {entry.name for entry in folder.iterdir()}
    except OSError as error:
        raise InputFileError(explain_refusal(folder, error)) from error
    if names & LIST_NAMES:
        return [folder]
    found = [folder / name for name in sorted(names) if parse_folder_name(name) is not None]
    if not found:
        raise InputFileError(
            f"{show_path(folder)}: no lists of a sweep; expected successful_configs.log and "
            f"failed_configs.log, or folders {FOLDER_NAME} with them"
        )
    return found


def _read_list(
    path: Path, outcome: Outcome, entries: dict[tuple[int, int, int | None], LogEntry], notes: list[str]
) -> None:
    try:
        text = read_input_file(path, _LIMIT_BYTES).decode("utf-8", "replace")
    except InputFileError as error:
        notes.append(str(error))
        return
    unread = []
    both = 0
    for number, line in enumerate(text.splitlines(), 1):
        if "=" not in line:
            continue
        degrees = [match and int(match[1]) for match in (_TP.search(line), _PP.search(line))]
        tp, pp = degrees
        if not tp or not pp:
            unread.append(number)
            continue
        dp = _DP.search(line)
        status = _STATUS.search(line)
        layout = (tp, pp, int(dp[1]) if dp else None)
        known = entries.get(layout)
        both += known is not None and {known.outcome, outcome} == {"failed", "success"}
        entries[layout] = LogEntry(outcome, int(status[1]) if status else None)
    if unread:
        notes.append(
            f"{show_name(path)}: {len(unread):,} lines without TP= and PP= of at least 1 were left out, "
            f"the first is line {unread[0]}"
        )
    if both:
        notes.append(
            f"{both:,} configurations are listed as failed and as successful; they count as successful"
        )


def _read_settings(path: Path, notes: list[str]) -> tuple[int | None, int | None]:
    if not path.exists():
        return None, None
    try:
        text = read_input_file(path, _LIMIT_BYTES).decode("utf-8", "replace")
    except InputFileError as error:
        notes.append(str(error))
        return None, None
    told = {key: int(value) for key, value in _SETTING.findall(text)}
    return told.get("Number of Layers"), told.get("Number of Attention Heads")


# The lines are those of Megatron-LM and torchrun. A log may be long: of one that ran only both ends are
# read.

FILE_NAME = "global_rank_0.log"
FOLDER = re.compile(r"TP([0-9]{1,9})_PP([0-9]{1,9})_DP([0-9]{1,9})(?:_.*)?")
_FILE_LIMIT_BYTES = 1 << 40
_MOST_BYTES = 16 << 20
_END_BYTES = 1 << 18
_MOST_CAUSE = 200
_OUT_OF_MEMORY = re.compile(rb"out of memory|OutOfMemoryError")
_ERROR = re.compile(rb"^.*?\b([A-Za-z_][\w.]{0,100}(?:Error|Exception)): *(\S[^\r\n]*)", re.MULTILINE)
_ABOUT_OTHERS = b"ChildFailedError"
_SIGNAL = re.compile(rb"exitcode *: *-([0-9]+)")
# What torchrun puts before each line of a rank.
_LAUNCHER = re.compile(r"^\[[\w ]+\]: ?")
_COLOUR = re.compile(rb"\x1b\[[0-9;]*m")
# A number with more digits is no size and no time.
_NUMBER = rb"(-?[0-9]{1,12}(?:\.[0-9]{1,20})?)(?![0-9])"
_ITERATION = re.compile(rb"elapsed time per iteration \(ms\): *" + _NUMBER)
_SPEED = re.compile(rb"throughput per GPU \(TFLOP/s/GPU\): *" + _NUMBER)
_STOPPED = re.compile(rb"peak memory: *" + _NUMBER + rb" MB, theoretical memory: *" + _NUMBER + rb" MB")
_PARTS = re.compile(rb"weight and optimizer=" + _NUMBER + rb" MB, activation=" + _NUMBER + rb" MB")


def read_configuration_log(path: Path, *, has_failed: bool) -> ConfigurationLog:
    """Read the log of one configuration; if it failed, search its last 16 MiB for the cause."""
    data = _COLOUR.sub(b"", _read(path, is_whole=has_failed))
    is_out_of_memory, cause = _find_cause(data) if has_failed else (False, None)
    iteration_ms = _find_last(_ITERATION, data)
    tflops = _find_last(_SPEED, data)
    peak, theory = _find_pair(_STOPPED, data)
    states, activations = _find_pair(_PARTS, data)
    return ConfigurationLog(
        path=path,
        is_out_of_memory=is_out_of_memory,
        cause=cause,
        iteration_s=None if iteration_ms is None else iteration_ms / 1000,
        tflops_per_gpu=tflops,
        peak_allocated_bytes=peak,
        theoretical_bytes=theory,
        states_bytes=states,
        activations_bytes=activations,
    )


def _read(path: Path, *, is_whole: bool) -> bytes:
    with open_input_file(path, _FILE_LIMIT_BYTES) as (file, size_bytes):
        most_bytes = _MOST_BYTES if is_whole else 2 * _END_BYTES
        if size_bytes <= most_bytes:
            return file.read(most_bytes)
        head = b"" if is_whole else file.read(_END_BYTES)
        file.seek(len(head) - most_bytes, os.SEEK_END)
        return head + b"\n" + file.read(most_bytes)


def _find_cause(data: bytes) -> tuple[bool, str | None]:
    """Return whether the device ran out of memory, and the line by which the run failed."""
    found = _OUT_OF_MEMORY.search(data)
    if found is not None:
        start = data.rfind(b"\n", 0, found.start()) + 1
        end = data.find(b"\n", found.end())
        return True, _as_text(data[start : end if end >= 0 else len(data)])
    errors = [match for match in _ERROR.finditer(data) if _ABOUT_OTHERS not in match[1]]
    if errors:
        return False, _as_text(errors[-1][1].rpartition(b".")[2] + b": " + errors[-1][2])
    signal = _SIGNAL.search(data)
    if signal is not None:
        hint = ", often for lack of host memory" if signal[1] == b"9" else ""
        return False, f"ended by signal {signal[1].decode()}{hint}"
    return False, None


def _as_text(line: bytes) -> str:
    text = _LAUNCHER.sub("", " ".join(line.decode("utf-8", "replace").split()))
    return make_printable(text, _MOST_CAUSE)


def _find_last(pattern: re.Pattern[bytes], data: bytes) -> float | None:
    found = pattern.findall(data)
    return float(found[-1]) if found and float(found[-1]) > 0 else None


def _find_pair(pattern: re.Pattern[bytes], data: bytes) -> tuple[int | None, int | None]:
    """Return two sizes in bytes; None if they are absent, or -1."""
    found = pattern.findall(data)
    if not found:
        return None, None
    try:
        first, second = (logged_bytes(float(text)) for text in found[-1])
    except ValueError:
        return None, None
    return first, second


def find_configuration_logs(folder: Path) -> dict[tuple[int, int, int], Path]:
    """Return the logs below a log folder by TP, PP and DP."""
    found: dict[tuple[int, int, int], Path] = {}
    try:
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda it: it.name):
                match = FOLDER.fullmatch(entry.name)
                path = Path(entry.path, FILE_NAME)
                if match is not None and path.is_file():
                    found[int(match[1]), int(match[2]), int(match[3])] = path
    except OSError as error:
        raise InputFileError(f"{folder}: cannot be read: {error.strerror}") from error
    return found
