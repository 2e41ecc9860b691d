"""The one list of all formats: what a file or folder is, by its content, and which verbs read it.

A verb that is given a file of another verb says so with these words, not with what its own reader missed.
"""

import csv
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

from ..errors import InputFileError
from .base.input_file import SMALL_TEXT_BYTES
from .base.packed_file import CHUNK_BYTES, PackedFile
from .base.toml_text import parse_toml
from .case_table import MODEL_COLUMNS
from .device_profile import begins_device_profile
from .flight_record import PATTERN as FLIGHT_PATTERN
from .framework.log import tells_time
from .galvatron import OVERLAP_FILE
from .memory_trace.run import FILE_PATTERN as TRACE_PATTERN
from .module_memory import EXACT_NAME, LOG_NAME, is_module_memory, list_charts
from .phases import is_phase_file
from .run_config import ConfigKind, read_run_config
from .series.format import FORMATS, recognize_series
from .serving_log import recognize_serving_log
from .sweep.folders import find_folders
from .sweep.model import LIST_NAMES

# Verbs that play a series of memory over time.
SERIES = ("import", "replay", "diff", "profile --input")
# Verbs that read the same files as those; too many to name each time.
ALIKE = ("oom --input", "leak --input", "fragment --input", "plan --measured")
How = Literal["it", "its folder", "one of its files"]
_MOST_ENTRIES = 20_000
_OOM_CHUNKS = 64


class FileKind(NamedTuple):
    # With its article: `a trace of torch.profiler`.
    words: str
    # Verbs, with the flag that takes the file: `import`, `plan --cluster`.
    readers: tuple[str, ...] = ()
    # What such a verb needs.
    how: How = "it"
    # Verbs that read some of the kind, and explain themselves why they refuse one.
    also: tuple[str, ...] = ()

    def is_read_by(self, usage: str) -> bool:
        """True also for a verb too much like another to be named."""
        if usage in self.also:
            return True
        return self.how == "it" and (usage in self.readers or (SERIES[0] in self.readers and usage in ALIKE))

    def explain(self, usage: str) -> str:
        """Return what it is and which verb reads it, for a verb that does not."""
        if not self.readers:
            return f"{self.words}, which no verb reads"
        if usage in self.readers:
            return f"{self.words}; give {self.how} to {self.list_readers()}"
        return (
            f"{self.words}, which `vramscope {usage}` does not read; give {self.how} to {self.list_readers()}"
        )

    def list_readers(self) -> str:
        names = [f"`vramscope {reader}`" for reader in self.readers]
        return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else "".join(names)


# JSON of ours, by the name in its `schema`.
_OURS: Mapping[str, FileKind] = {
    "profile": FileKind("a report of `vramscope profile`", SERIES),
    "oom": FileKind("a report of `vramscope oom`", SERIES),
    "leak": FileKind("a report of `vramscope leak`", SERIES),
    "fragment": FileKind("a report of `vramscope fragment`"),
    "distributed": FileKind("a report of `vramscope distributed`"),
    "status": FileKind("what `vramscope --json` printed", SERIES),
    "flight": FileKind("a flight record of an out-of-memory error", ("inspect",)),
    "phases": FileKind("what `vramscope phases --json` printed", ("phases --read", "inspect")),
    "modules": FileKind("a profile by module", ("modules", "inspect")),
    "calibration": FileKind("a calibration of the memory theory", ("estimate --calibration",)),
    "phase-records": FileKind("what `vramscope phases --read --json` printed"),
    "breakdown": FileKind("what `vramscope modules --json` printed"),
    "heatmap": FileKind("what `vramscope heatmap --json` printed"),
    "sweep": FileKind("what `vramscope sweep --json` printed"),
    "estimate": FileKind("what `vramscope estimate --json` printed"),
    "compiled-estimate": FileKind("what `vramscope estimate --factory --json` printed"),
    "factory-estimate": FileKind("what `vramscope estimate --json` printed"),
    "serving-estimate": FileKind("what `vramscope estimate --serve --json` printed"),
    "serving-log": FileKind("what `vramscope inspect --json` printed"),
    "formula": FileKind("what `vramscope estimate --json` printed"),
    "seqlen": FileKind("what `vramscope seqlen --json` printed"),
    "plan": FileKind("what `vramscope plan --json` printed"),
    "joint-plan": FileKind("what `vramscope plan --json` printed"),
    "plan-feedback": FileKind("what `vramscope plan --json` printed"),
    "difference": FileKind("what `vramscope diff --json` printed"),
    "snapshot-difference": FileKind("what `vramscope diff --json` printed"),
    "snapshot": FileKind("what `vramscope inspect --json` printed"),
    "device-profile": FileKind("what `vramscope inspect --json` printed"),
    "moment": FileKind("what `vramscope inspect --at --json` printed"),
    "guard": FileKind("what `vramscope guard --json` printed"),
    "fleet": FileKind("what `vramscope --json` printed of several nodes"),
    "doctor": FileKind("what `vramscope doctor --json` printed"),
    "advice": FileKind("what `vramscope advise --json` printed"),
}
_MODELS: Mapping[ConfigKind, FileKind] = {
    "hugging_face": FileKind("a model's configuration (Hugging Face)", ("plan --model", "estimate --model")),
    "galvatron": FileKind("a model's configuration (Galvatron)", ("plan --model", "estimate --model")),
    "megatron": FileKind("the arguments of Megatron-LM", ("plan --model", "estimate --model")),
    "nemo": FileKind("a configuration of NeMo", ("plan --model", "estimate --model")),
    "torchtitan": FileKind("a configuration of torchtitan", ("plan --model", "estimate --model")),
}
_SERVING = FileKind("the start-up log of a server", ("inspect",))
_DEVICE_PROFILE = FileKind("a device memory profile of JAX", ("inspect",))
_OOM = FileKind("a text with an out-of-memory error", ("inspect",))
_GRAPH = FileKind("a graph of a model's layers", ("plan --model",))
_CHART = FileKind("a chart of memory by module", ("modules", "inspect"))
_PHASES = FileKind("memory by phase", ("phases --read", "inspect"))
_MODULES = FileKind("a profile by module", ("modules", "inspect"))
_CLUSTER = FileKind("a description of a cluster", ("plan --cluster",))
_SETTINGS = FileKind("a settings file", ("--config",))
_BATCH = FileKind("a list of heat maps", ("heatmap --batch",))
_LAYER_TIMES = FileKind("a computation profile of Galvatron", ("plan --calibrate-time",))
_RAW_TIMES = FileKind(
    "a computation profile of Galvatron without layertype entries", also=("plan --calibrate-time",)
)
_HARDWARE = "a hardware profile of Galvatron"
_LIST = FileKind("a list of a sweep's configurations", ("sweep", "heatmap --log-dir"), "its folder")
_LOGS = FileKind("a folder of a sweep's logs", ("heatmap --log-dir", "sweep"), also=("replay --log-dir",))
_SWEEPS = FileKind("a folder of sweeps", ("sweep", "replay"))

_SCHEMA = re.compile(rb'"schema"\s*:\s*"vramscope\.([a-z-]{1,40})/\d')
_SCHEMA_BYTES = 512
_OOM_MARK = b" out of memory. Tried to allocate "
_LAYER_TYPE = re.compile(rb'"layer_type"\s*:')
_GALVATRON_TIMES = re.compile(rb'\s*\{\s*"(?:layertype_\w{1,60}|layernum\[[^"\n]{1,80})"\s*:\s*[\d.]')
_GALVATRON_MEMORY = re.compile(rb'"layernum\[[^"\n]{1,80}"\s*:')
_GALVATRON_LINKS = re.compile(rb'\s*\{\s*"(?:allreduce_size_|all2all_size_|pp_size_|overlap_coe)')
_PAGE = b"var option_"
_DRAWN = b"<title>Memory by module"
_DRAWER = "that `vramscope modules --figure` drew"
_MEASURED_COLUMNS = {"mem_allocated_last_bytes", "mem_max_allocated_peak_bytes"}
_TIMED_COLUMNS = {"tp", "pp", "mbs", "iteration_ms"}


def identify(path: Path) -> FileKind | None:
    """Recognize a file or folder by the beginning of its content; None if it is not known.

    A file of two kinds, as a log with memory values and an error, gets the words of the first and the readers
    of both.
    """
    try:
        kinds = list(_identify_folder(path) if path.is_dir() else _identify_file(path))
        if path.is_dir() and not kinds:
            kinds = list(_identify_tree(path))
    except (InputFileError, OSError):
        return None
    if not kinds:
        return None
    readers = tuple(
        dict.fromkeys(reader for kind in kinds if kind.how == kinds[0].how for reader in kind.readers)
    )
    return kinds[0]._replace(readers=readers)


def _identify_tree(folder: Path) -> Iterator[FileKind]:
    """Some verbs look one level down and no further."""
    found = find_folders([folder])
    if not (found.traces or found.logs):
        return
    also: list[str] = []
    if any(file.path.parent.parent == folder for traces in found.traces for file in traces.files):
        also += ["heatmap --memory-dir"]
    if any(path.parent == folder for path in found.logs):
        also += ["heatmap --log-dir", "replay --log-dir"]
    yield _SWEEPS._replace(also=tuple(also))


def _identify_file(path: Path) -> Iterator[FileKind]:
    file = PackedFile(path)
    try:
        head = file.read(CHUNK_BYTES)
    finally:
        file.close()
    ours = _SCHEMA.search(head, 0, _SCHEMA_BYTES)
    if ours is not None:
        name = ours[1].decode()
        yield _OURS.get(name, FileKind(f"JSON of vramscope ({name})"))
        return
    if _DRAWN in head:
        yield FileKind(f"a page {_DRAWER}")
        return
    for recognize in _RECOGNIZERS:
        with suppress(InputFileError, UnicodeError, ValueError, RecursionError, csv.Error):
            kind = recognize(path, head)
            if kind is not None:
                yield kind


def _is_series(path: Path, head: bytes) -> FileKind | None:
    found = recognize_series(path)
    if found == "recording" and not is_recording(path):
        return FileKind("a database that is no recording")
    if found == "framework log" and not tells_time(head.decode("utf-8", "replace")):
        return None
    return FileKind(FORMATS[found].words, SERIES + FORMATS[found].more)


def is_recording(path: Path) -> bool:
    """Return whether an SQLite file has our application id."""
    from ..recording.schema import APPLICATION_ID

    with path.open("rb") as file:
        # Offset of the application id in the header: sqlite.org/fileformat.html
        file.seek(68)
        return int.from_bytes(file.read(4), "big") == APPLICATION_ID


def _is_module_file(path: Path, head: bytes) -> FileKind | None:
    if not is_module_memory(path):
        return None
    return _CHART if _PAGE in head else _MODULES


def _is_phases(path: Path, head: bytes) -> FileKind | None:
    return _PHASES if is_phase_file(path) else None


def _is_planning_json(path: Path, head: bytes) -> FileKind | None:
    if _GALVATRON_TIMES.match(head):
        return _LAYER_TIMES if b'"layertype_' in head else _RAW_TIMES
    if head.lstrip().startswith(b"{") and _GALVATRON_MEMORY.search(head):
        return FileKind("a memory profile of Galvatron")
    if _GALVATRON_LINKS.match(head):
        return FileKind(_HARDWARE, ("plan --cluster DEVICE@DIR",), "its folder")
    return _GRAPH if head.lstrip().startswith(b"{") and _LAYER_TYPE.search(head) else None


def _is_sweep_list(path: Path, head: bytes) -> FileKind | None:
    return _LIST if path.name in LIST_NAMES else None


def _is_table(path: Path, head: bytes) -> FileKind | None:
    line = head.partition(b"\n")[0].decode("utf-8-sig")
    names = {name.strip() for name in next(csv.reader([line]), [])}
    readers = ["estimate --batch"] if names & MODEL_COLUMNS else []
    readers += ["calibrate"] if names >= _MEASURED_COLUMNS else []
    readers += ["plan --calibrate-time"] if names >= _TIMED_COLUMNS else []
    return FileKind("a table of training runs (CSV)", tuple(readers)) if readers else None


def _is_toml(path: Path, head: bytes) -> FileKind | None:
    from ..settings.model import SETTING_KEYS, TABLES

    if path.suffix.lower() != ".toml" or len(head) >= CHUNK_BYTES:
        return None
    keys = set(parse_toml(head.decode("utf-8-sig"), path))
    if "memory_dir" in keys:
        return _BATCH
    if "nodes" in keys:
        return _CLUSTER
    if "model" in keys:
        return _MODELS["torchtitan"]
    return _SETTINGS if keys and keys <= {*SETTING_KEYS, *TABLES} else None


def _is_cluster(path: Path, head: bytes) -> FileKind | None:
    if path.suffix.lower() == ".toml" or len(head) >= CHUNK_BYTES:
        return None
    from .cluster_file import read_cluster_file

    read_cluster_file(path)
    return _CLUSTER


def _is_model(path: Path, head: bytes) -> FileKind | None:
    if path.suffix.lower() == ".toml" or path.stat().st_size > SMALL_TEXT_BYTES or _LAYER_TYPE.search(head):
        return None
    return _MODELS[read_run_config(path).kind]


def _is_serving_log(path: Path, head: bytes) -> FileKind | None:
    return None if recognize_serving_log(path) is None else _SERVING


def _is_device_profile(path: Path, head: bytes) -> FileKind | None:
    return _DEVICE_PROFILE if begins_device_profile(head) else None


def _is_oom(path: Path, head: bytes) -> FileKind | None:
    file = PackedFile(path)
    try:
        kept = b""
        for data in islice(file.chunks(), _OOM_CHUNKS):
            if _OOM_MARK in kept + data:
                return _OOM
            kept = data[-len(_OOM_MARK) :]
    finally:
        file.close()
    return None


_RECOGNIZERS: tuple[Callable[[Path, bytes], FileKind | None], ...] = (
    _is_sweep_list,
    _is_planning_json,
    _is_series,
    _is_module_file,
    _is_phases,
    _is_table,
    _is_toml,
    _is_model,
    _is_cluster,
    _is_serving_log,
    _is_device_profile,
    _is_oom,
)


def _identify_folder(folder: Path) -> Iterator[FileKind]:
    """Recognize a folder by the names of its files, and of those one level down."""
    with os.scandir(folder) as listing:
        entries = sorted(islice(listing, _MOST_ENTRIES), key=lambda it: it.name)
    paths = [Path(entry.path) for entry in entries]
    below = [inner for path in paths if path.is_dir() for inner in islice(path.iterdir(), 1000)]

    def has(pattern: str, *, is_deep: bool = False) -> bool:
        return any(path.match(pattern) for path in (*paths, *(below if is_deep else ())))

    if has("*.vscope"):
        yield FileKind("a folder of recordings", ("replay", "diff", "plan --measured"))
    if has(TRACE_PATTERN):
        yield FileKind("a folder of memory traces", (*SERIES, "sweep", "heatmap --memory-dir"))
    if any(has(name) for name in LIST_NAMES):
        yield _LOGS
    if has(EXACT_NAME, is_deep=True) or has(LOG_NAME, is_deep=True):
        yield FileKind("a folder of profiles by module", ("modules",))
    elif any(map(list_charts, (folder, *(path for path in paths if path.is_dir())))):
        yield FileKind("a folder of charts of memory by module", ("modules",))
    elif any(_is_drawn(path) for path in paths if path.suffix == ".html"):
        yield FileKind(f"a folder of pages {_DRAWER}")
    if has("config.json"):
        yield FileKind("a folder of a model", ("plan --model", "estimate --model"))
    if has(OVERLAP_FILE) or has("*_bandwidth_*nodes_*gpus_per_node.json"):
        yield FileKind("a folder of hardware profiles of Galvatron", ("plan --cluster DEVICE@DIR",))
    if has(FLIGHT_PATTERN):
        yield FileKind("a folder of flight records", ("inspect",), "one of its files")


def _is_drawn(path: Path) -> bool:
    with suppress(InputFileError):
        return any(kind.words.endswith(_DRAWER) for kind in _identify_file(path))
    return False
