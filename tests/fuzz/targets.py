"""What is fuzzed: each target takes bytes, reads them as the program would, and checks what comes of it.

An input is handled well where it is read, or refused by an error with one line; everything else is a find.
"""

import atexit
import io
import json
import os
import pickle
import resource
import shutil
import tempfile
import tomllib
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar, cast

import msgspec

from tests.engine.files.test_event_runs import spell_out
from tests.engine.sources.pretend_kubelet import Given, make_answer
from vramscope.analyzers.modules import make_breakdown
from vramscope.engine.errors import ServerUnreachableError, VramscopeError
from vramscope.engine.files.base import input_file
from vramscope.engine.files.case_table import read_case_table
from vramscope.engine.files.detect import identify
from vramscope.engine.files.flight_record import read_flight_record, read_memory_file, recognize_memory_file
from vramscope.engine.files.framework.oom_text import parse_oom_text
from vramscope.engine.files.galvatron import read_layer_profile
from vramscope.engine.files.memory_snapshot.decoder import decode
from vramscope.engine.files.memory_trace.reading import read_memory_trace
from vramscope.engine.files.module_memory import read_module_memory
from vramscope.engine.files.phases import read_phase_file
from vramscope.engine.files.run_config import read_model_config, read_run_config
from vramscope.engine.files.serving_log import read_serving_log
from vramscope.engine.files.sweep.model import read_configuration_log
from vramscope.engine.model import DeviceSample, Sample, ServerKind, ServerSample
from vramscope.engine.recording import Recording
from vramscope.engine.recording.block import (
    DAMAGES,
    BlockError,
    Body,
    TickedSample,
    list_columns,
    pack_samples,
    pack_told,
    pack_values,
    unpack_samples,
    unpack_told,
    unpack_values,
)
from vramscope.engine.recording.contents import Told
from vramscope.engine.sampling.series_source import open_series
from vramscope.engine.settings.layers import read_settings_file
from vramscope.engine.soundness import check_numbers
from vramscope.engine.sources.cgroups import find_owner
from vramscope.engine.sources.drm.dmem import parse_dmem
from vramscope.engine.sources.drm.fdinfo import parse_fdinfo
from vramscope.engine.sources.drm.gpu_metrics import parse_metrics
from vramscope.engine.sources.host import parse_meminfo, parse_stall_us, parse_swapped_in
from vramscope.engine.sources.kernel_log import parse_message, parse_records
from vramscope.engine.sources.owners.containers import parse_containers
from vramscope.engine.sources.owners.kubelet import Allocation, parse_answer, parse_checkpoint
from vramscope.engine.sources.owners.names import join_by_ids, list_allocations
from vramscope.engine.sources.serving.answers import read_answer, recognize_answer
from vramscope.engine.workloads.serving.formats import Format, answer
from vramscope.engine.workloads.serving.server import ServerSetup, SimulatedServer
from vramscope.exporters.json_lines import encode_line
from vramscope.exporters.modules.page import PAGES, join_kinds, render_page
from vramscope.exporters.modules.text import describe_module_memory, report_module_memory
from vramscope.exporters.phases.report import report_phase_records
from vramscope.exporters.phases.text import describe_phase_file
from vramscope.exporters.serving.start_log import describe_serving_log, summarize_serving_log
from vramscope.planning.joint import read_cluster

from . import peers
from .showing import is_shown, showing_all

MOST_SAMPLES, SHOWN_SAMPLES = 100, 5000
"""Read of a series by most runs, and by those that show what they read."""
_CHOICES: dict[str, msgspec.msgpack.Decoder[list[Any]]] = {
    "int": msgspec.msgpack.Decoder(list[int]),
    "float": msgspec.msgpack.Decoder(list[float]),
    "choice": msgspec.msgpack.Decoder(list[str]),
}
_COLUMNS: tuple[tuple[str, list[Any]], ...] = (
    ("int", [1 << 40, 1 << 41, None, 7]),
    ("float", [0.5, 1.25, 1.7e9, None]),
    ("choice", ["a", "b", "a", None]),
    ("int", [*range(300)][:200]),
    ("float", [1.1, 2.3e-9, 5e300]),
    ("choice", ["same"] * 9),
)
Read = TypeVar("Read")
TRACE_NAME = "memory_trace_rank1_wd8_tp2_pp4_exp1_expNumNone_l40_bs1.json"


def read_kernel_files(data: bytes) -> None:
    """Read what the kernel writes of devices and the host, whichever file it is; values must be possible."""
    client = parse_fdinfo(data)
    metrics = parse_metrics(data)
    sizes = [
        *(() if client is None else client.resident.values()),
        *parse_dmem(data).values(),
        *(parse(data) or 0 for parse in (parse_stall_us, parse_swapped_in)),
        *(parse_meminfo(data).total_bytes or 0, parse_meminfo(data).available_bytes or 0),
    ]
    assert all(size >= 0 for size in sizes)
    assert metrics is None or metrics.busy_percent is None or 0 <= metrics.busy_percent <= 100
    for since_boot_s, message in parse_records(data):
        report = parse_message(message)
        assert since_boot_s >= 0.0
        assert report is None or len(report.text) <= 200
    owner = find_owner(data.decode("utf-8", "replace"))
    assert owner.slurm_job is None or owner.slurm_job.isdigit()


class Target(NamedTuple):
    """One thing that reads."""

    run: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    """Sound inputs to begin with."""
    most_bytes: int = 1 << 16
    memory_bytes: int | None = None
    """What reading may take, where the program bounds it by the process that reads."""

    def replay(self, data: bytes) -> None:
        """Run it on one input, within that memory."""
        with bounding_memory(self.memory_bytes), showing_all():
            self.run(data)


@contextmanager
def bounding_memory(more_bytes: int | None) -> Iterator[None]:
    """Let this process take so many bytes more than it has now; without end for None."""
    if more_bytes is None:
        yield
        return
    limits = resource.getrlimit(resource.RLIMIT_AS)
    in_use_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use_bytes + more_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


@cache
def _folder() -> Path:
    """Return a folder for the file that is read, one for each process."""
    folder = Path(tempfile.mkdtemp(prefix="vramscope-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


class _HeldFile(io.BytesIO):
    """The bytes of a file that was put, for readers that only read; its size is that of the file."""

    def __init__(self, data: bytes, descriptor: int) -> None:
        super().__init__(data)
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor


_held: dict[str, tuple[bytes, int]] = {}
"""What is in each file that was put, by its path."""


def _open(path: Path, mode: str, *, opener: Any = None) -> BinaryIO:
    held = _held.get(os.fspath(path))
    return cast(BinaryIO, open(path, mode, opener=opener)) if held is None else _HeldFile(*held)


# Opening a file four times takes longer than most readers do.
setattr(input_file, "open", _open)  # noqa: B010 - it is a name of the module only from here on


@cache
def _open_once(name: str) -> tuple[Path, str, int]:
    path = _folder() / name
    return path, str(path), os.open(path, os.O_CREAT | os.O_RDWR)


def _put(name: str, data: bytes) -> Path:
    """Rewrite the file in place: to make it again takes longer than to read it."""
    path, text, descriptor = _open_once(name)
    os.pwrite(descriptor, data, 0)
    os.ftruncate(descriptor, len(data))
    os.lseek(descriptor, 0, os.SEEK_SET)  # a process that was given it has read on
    _held[text] = data, descriptor
    return path


def _check_samples(samples: Iterable[Sample], most: int = SHOWN_SAMPLES) -> None:
    """Read samples and send them through the wire, which has to take them."""
    for sample in islice(samples, most):
        msgspec.msgpack.decode(msgspec.msgpack.encode(sample), type=Sample)


def _read_guarded(read: Callable[[], Read]) -> Read | None:
    """Return what was read; None where it was refused, which has to be in one line."""
    try:
        return read()
    except VramscopeError as error:
        if "\n" in str(error):
            raise AssertionError(f"a refusal of more than a line: {error}") from error
        return None


def read_recording(data: bytes) -> None:
    """Read a recording whole."""
    path = _put("run.vscope", data)

    def read() -> None:
        with Recording(path) as recording:
            _check_samples(recording.samples())
            span = recording.span
            if span is not None:
                recording.sample_at(span[0] / 2 + span[1] / 2)
            recording.overview()
            recording.findings()
            list(recording.told())
            list(recording.events(kinds=["step", "oom"]))

    _read_guarded(read)


def read_block(data: bytes) -> None:
    """Read the columns of samples, as they are once they are decompressed."""
    rows, raw = data[:1], data[1:]
    body = Body(zlib.compress(raw, 1), len(raw), rows[0] if rows else 0)
    try:
        read = unpack_samples(body, list_columns())
    except BlockError:
        return
    msgspec.msgpack.decode(msgspec.msgpack.encode(read), type=list[TickedSample])


def read_column(data: bytes) -> None:
    """Read one column of numbers, or of words."""
    if len(data) < 3:
        return
    kind, count = ("int", "float", "choice")[data[0] % 3], data[1] + 256 * (data[2] % 4)
    try:
        read = unpack_values(data[3:], kind, count, _CHOICES[kind], is_optional=True)
        values = list(islice(read, count + 1))
    except DAMAGES:
        return
    assert len(values) == count
    assert kind == "choice" or all(it is None or isinstance(it, int | float) for it in values)


def read_told(data: bytes) -> None:
    """Read the columns of what analyzers said."""
    rows, raw = data[:1], data[1:]
    body = Body(zlib.compress(raw, 1), len(raw), rows[0] if rows else 0)
    try:
        read = unpack_told(body, list_columns())
    except BlockError:
        return
    msgspec.msgpack.decode(msgspec.msgpack.encode(read), type=list[Told])


def read_series(data: bytes) -> None:
    """Read a file in whatever format of series its content says that it is."""
    path, most = _put("series.txt", data), SHOWN_SAMPLES if is_shown(data) else MOST_SAMPLES
    _read_guarded(lambda: _check_samples(open_series(path).samples(), most))


def read_trace(data: bytes) -> None:
    """Read a memory trace."""
    path = _put(TRACE_NAME, data)
    _read_guarded(lambda: read_memory_trace(path))


def play_trace(data: bytes) -> None:
    """Read a memory trace as `import` does: piece by piece."""
    path, most = _put(TRACE_NAME, data), SHOWN_SAMPLES if is_shown(data) else MOST_SAMPLES
    _read_guarded(lambda: _check_samples(open_series(path).samples(), most))


def read_memory(data: bytes) -> None:
    """Read a file that explains memory, unless it is a snapshot: that is read in a process of its own."""
    path = _put("memory.bin", data)

    def read() -> None:
        if recognize_memory_file(path) != "snapshot":
            read_memory_file(path)

    _read_guarded(read)


def read_snapshot(data: bytes) -> None:
    """Decode a memory snapshot as the process does that is made for it."""
    reply = decode(io.BufferedReader(io.BytesIO(data)))
    at_once = decode(io.BufferedReader(io.BytesIO(data)), are_events_many=True)
    assert (reply.snapshot is None) == bool(reply.refusal or reply.is_out_of_memory)
    assert reply.refusal is None or "\n" not in reply.refusal
    if at_once.is_out_of_memory or reply.is_out_of_memory:
        return  # a number of gigabytes is or is not there, as it happens
    assert at_once.refusal == reply.refusal
    if at_once.snapshot is not None and reply.snapshot is not None and is_shown(data):
        assert spell_out(at_once.snapshot) == spell_out(reply.snapshot)


def read_flight(data: bytes) -> None:
    """Read a flight record."""
    path = _put("flight.json", data)
    _read_guarded(lambda: read_flight_record(path))


def read_oom_text(data: bytes) -> None:
    """Read the words of an out-of-memory error."""
    parse_oom_text(data.decode("utf-8", "replace"))


def read_cluster_text(data: bytes) -> None:
    """Read a cluster file; the first byte says in which format."""
    suffix = ("toml", "yaml", "json")[data[0] % 3] if data else "toml"
    path = _put(f"cluster.{suffix}", data[1:])
    _read_guarded(lambda: read_cluster(path))


def read_modules(data: bytes) -> None:
    """Read a profile by module, and say and draw what is in it."""
    path = _put("memory.log", data)
    memory = _read_guarded(lambda: read_module_memory(path))
    if memory is None or not is_shown(data):
        return
    breakdown = make_breakdown(memory)
    describe_module_memory(memory, width=80).encode()
    encode_line(report_module_memory(memory, "memory.log"))
    for name in PAGES:
        tree = join_kinds(memory, name)
        if tree is not None:
            render_page(memory, breakdown, name, tree)


def read_phases(data: bytes) -> None:
    """Read a file of runs by phase, and say what is in it."""
    path = _put("phases.out", data)
    file = _read_guarded(lambda: read_phase_file(path))
    if file is not None and is_shown(data):
        describe_phase_file(file, 80).encode()
        encode_line(report_phase_records(file))


_SUFFIXES = ("json", "toml", "yaml", "csv", "log", "pickle")


def _put_named(name: str, data: bytes) -> Path:
    """Write a file whose first byte says which ending its name gets."""
    return _put(f"{name}.{_SUFFIXES[data[0] % len(_SUFFIXES)] if data else 'log'}", data[1:])


def identify_file(data: bytes) -> None:
    """Say what a file is, of whatever kind."""
    kind = identify(_put_named("some", data))
    assert kind is None or "\n" not in kind.explain("import")


def read_serving_text(data: bytes) -> None:
    """Read the start-up log of a server, and say what is in it."""
    path = _put("server.log", data)
    log = _read_guarded(lambda: read_serving_log(path))
    if log is not None and is_shown(data):
        report = summarize_serving_log(log)
        encode_line(report)
        describe_serving_log(report, 80).encode()


def read_sweep_log(data: bytes) -> None:
    """Read the log of one configuration of a sweep, as one that failed and as one that did not."""
    path = _put("global_rank_0.log", data)
    for has_failed in (False, True):
        _read_guarded(lambda has_failed=has_failed: read_configuration_log(path, has_failed=has_failed))  # type: ignore[misc]


def read_configs(data: bytes) -> None:
    """Read a configuration of a model in each way that verbs do."""
    path = _put_named("config", data)
    _read_guarded(lambda: read_run_config(path))
    _read_guarded(lambda: read_model_config(path))
    _read_guarded(lambda: read_layer_profile(path))


def read_table(data: bytes) -> None:
    """Read a table of training runs."""
    path = _put("runs.csv", data)
    _read_guarded(lambda: read_case_table(path))


def read_settings(data: bytes) -> None:
    """Read a settings file."""
    path = _put("settings.toml", data)
    _read_guarded(lambda: read_settings_file(path))


_SETTINGS = b"""interval = "1s"
history_window = 600
theme = "dark"
columns = ["pid", "memory"]
serving = ["http://localhost:8000"]
attach = "ask"
[alerts]
level = "medium"
kinds = ["oom", "leak"]
on = ["opened", "closed"]
command = ["notify", "it's"]
webhook_url = "https://example.org/hook"
timeout = 2.5
[record]
folder = "/tmp"
"""


@cache
def _seed_samples(most_bytes: int = 1 << 14) -> tuple[bytes, ...]:
    """Return a file of every format that is read, behind the byte of its ending."""
    from tests.engine.files.formats import write_samples

    folder = _folder() / "samples"
    folder.mkdir()
    files = [it for it in write_samples(folder).values() if it.is_file() and it.stat().st_size <= most_bytes]
    suffixes = [it.suffix[1:] if it.suffix[1:] in _SUFFIXES else "log" for it in files]
    rows = zip(files, suffixes, strict=True)
    return tuple(bytes([_SUFFIXES.index(suffix)]) + it.read_bytes() for it, suffix in rows)


def _seed_serving() -> Iterable[bytes]:
    from tests.engine.files.test_serving_log import ENGINE, RANKS, ROOM

    yield (ENGINE + RANKS + ROOM).encode()


def _seed_sweep_log() -> Iterable[bytes]:
    from tests.analyzers.planning.sweep.original import OUT_OF_MEMORY

    yield OUT_OF_MEMORY.encode()
    yield (
        b"elapsed time per iteration (ms): 812.5\nthroughput per GPU (TFLOP/s/GPU): 41.0\n"
        b"peak memory: 512.0 MB, theoretical memory: -1 MB\nweight and optimizer=3 MB, activation=4.5 MB\n"
    )


def _seed_configs() -> Iterable[bytes]:
    from tests.analyzers.planning.theory import test_configs as configs

    yield bytes([0]) + json.dumps(configs.HUGGING_FACE).encode()
    yield bytes([1]) + configs.TORCHTITAN.encode()
    yield bytes([2]) + configs.GALVATRON.encode()
    yield bytes([4]) + configs.ARGUMENTS.encode()
    yield bytes([0]) + b'{"layertype_0_bsz8_seq1024": 3.5, "layertype_other_0": 12.25}'


def _seed_phases() -> Iterable[bytes]:
    from tests.vramscope.phases.test_reading import FORMATS

    return [text.encode() for text in FORMATS.values()]


def _seed_modules() -> Iterable[bytes]:
    from tests.engine.probe.module_memory.profiles import CHART, LAYOUT, STATE, write_profile

    yield (STATE.format(time="1.5", activation="2.00") + LAYOUT).encode()
    yield write_profile(_folder()).read_bytes()
    yield CHART.encode()


def _seed_cluster() -> Iterable[bytes]:
    from tests.analyzers.planning.cluster.test_clusters import TOML, YAML

    rows = (TOML, YAML, json.dumps(tomllib.loads(TOML)))
    return [bytes([number]) + text.encode() for number, text in enumerate(rows)]


def _seed_recording() -> Iterable[bytes]:
    from tests.engine.recording.test_hostile_files import recorded

    # A page of it more or less is no other case, and takes as long again.
    return [recorded(ticks=6), recorded(ticks=6, is_ended=True)]


def _seed_block() -> Iterable[bytes]:
    from tests.engine.recording.samples import make_sample

    for devices in (0, 1, 3):
        rows = [TickedSample(tick, make_sample(tick, devices)) for tick in range(6)]
        yield bytes([len(rows)]) + zlib.decompress(pack_samples(rows).data)


def _seed_column() -> Iterable[bytes]:
    for place, (kind, values) in enumerate(_COLUMNS):
        yield bytes([place % 3, len(values), 0]) + pack_values(values, kind)


def _seed_told() -> Iterable[bytes]:
    from tests.engine.recording.samples import make_assessment, make_finding

    rows = [Told(tick, 1.5, (make_finding(tick),), (make_assessment(tick),)) for tick in range(4)]
    yield bytes([len(rows)]) + zlib.decompress(pack_told(rows).data)


def _seed_series() -> Iterable[bytes]:
    from tests.engine.files.test_series_fuzz import GOOD

    return [text.encode() for text in GOOD]


def _seed_trace() -> Iterable[bytes]:
    row = '{"timestamp_s": 0.5, "reserved_memory_MB": 600.0, "allocated_memory_MB": 500.0}'
    yield f'{{"0": {{"samples": [{row}, {row}], "peak_allocated_MB": 502.0}}}}'.encode()


def _seed_snapshot() -> Iterable[bytes]:
    from tests.engine.files.snapshots import BASE, event, frame, small_snapshot, snapshot

    small = [pickle.dumps(small_snapshot(), protocol=protocol) for protocol in (2, 4)]
    stack = [frame("step")]
    events = [event("alloc", BASE + 512 * number, 512, number, frames=stack) for number in range(1500)]
    return [*small, pickle.dumps(snapshot(small_snapshot()["segments"], events), protocol=4)]


def _seed_flight() -> Iterable[bytes]:
    from tests.engine.files.flight_records import record

    return [msgspec.json.encode(record())]


def _seed_oom_text() -> Iterable[bytes]:
    from tests.engine.files.test_series_fuzz import FRAMEWORK

    return [FRAMEWORK.encode()]


_PAGES: tuple[tuple[Format, ServerKind, str], ...] = (
    ("vllm", "vLLM", "/metrics"),
    ("vllm-old", "vLLM", "/metrics"),
    ("sglang", "SGLang", "/metrics"),
    ("triton", "TensorRT-LLM", "/metrics"),
    ("trtllm", "TensorRT-LLM", "/prometheus/metrics"),
    ("tgi", "TGI", "/metrics"),
    ("llama.cpp", "llama.cpp", "/metrics"),
    ("llama.cpp", "llama.cpp", "/slots"),
    ("ollama", "Ollama", "/api/ps"),
)


def read_metrics(data: bytes) -> None:
    """Read what a server of models answers; readings have to go through the wire."""
    for _, kind, path in dict.fromkeys((None, kind, path) for _, kind, path in _PAGES):
        recognize_answer(path, data)
        with suppress(ServerUnreachableError):
            found = read_answer(kind, {path: data})
            server = ServerSample(kind, "fuzz", engines=found.engines, plan=found.ranks)
            sample = Sample("n", 1, 1.0, 1.0, servers=(server,))
            check_numbers(sample)
            _check_samples([sample])


def _seed_metrics() -> Iterable[bytes]:
    server = SimulatedServer(ServerSetup(engines=2, tensor=2))
    server.advance(20.0)
    for form, _, path in _PAGES:
        page = answer(server, form, path)
        if page is not None:
            yield page[1].encode()


def read_owners(data: bytes) -> None:
    """Read what a kubelet, its file, Docker and Podman say; names have to go through the wire."""
    found: list[Allocation] = []
    for parse in (parse_answer, parse_checkpoint):
        with suppress(ValueError):
            found += parse(data)
    with suppress(ValueError):
        parse_containers(data)
    join_by_ids(found, found)
    for given in list_allocations(found).values():
        _check_samples([Sample("n", 1, 1.0, 1.0, (DeviceSample("GPU-1", 0, allocations=given),))])


def _seed_owners() -> Iterable[bytes]:
    yield make_answer([Given("ml", "llama-0", "trainer", ("GPU-a", "GPU-b::1"), "8a7b")])
    entry = {
        "PodUID": "8a7b",
        "ContainerName": "main",
        "ResourceName": "x/gpu",
        "DeviceIDs": {"0": ["GPU-a"]},
    }
    yield msgspec.json.encode({"Data": {"PodDeviceEntries": [entry]}, "Checksum": 1})
    yield msgspec.json.encode(
        [{"Id": "3f4e01234567", "Names": ["/run"]}, {"id": "4f4e01234567", "names": ["r"]}]
    )


def _seed_kernel() -> Iterable[bytes]:
    from tests.engine.sources.drm_root import APU_METRICS, LISTED_METRICS, MI300_METRICS, NAVI_METRICS

    return [
        NAVI_METRICS,
        MI300_METRICS,
        APU_METRICS,
        LISTED_METRICS,
        b"drm-driver:\txe\ndrm-pdev:\t0000:03:00.0\ndrm-client-id:\t3\ndrm-resident-vram0:\t23992 KiB\n"
        b"drm-cycles-ccs:\t28257900\ndrm-total-cycles-ccs:\t7655183225\n",
        b"drm-driver:\tamdgpu\ndrm-memory-vram:\t40 MiB\ndrm-engine-compute:\t7340012345 ns\n",
        b"drm/0000:03:00.0/vram0 8514437120\ndrm/0000:03:00.0/stolen 4096\n",
        b"some avg10=0.00 total=4\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=4711\npswpin 42\n",
        b"MemTotal: 2048 kB\nMemAvailable: 1024 kB\n",
        b"3,4711,98765432,-;NVRM: Xid (PCI:0000:41:00): 79, pid=812, GPU has fallen off the bus.\n",
        b"3,1,2000,-;amdgpu 0000:05:00.0: amdgpu: GPU reset begin!\n",
        b"0::/system.slice/slurmstepd.scope/job_812/step_0/user/task_0\n",
    ]


TARGETS = {
    "recording": Target(read_recording, _seed_recording, 1 << 20),
    "block": Target(read_block, _seed_block),
    "column": Target(read_column, _seed_column),
    "told": Target(read_told, _seed_told),
    "series": Target(read_series, _seed_series),
    "trace": Target(read_trace, _seed_trace),
    "played-trace": Target(play_trace, _seed_trace),
    "memory": Target(read_memory, lambda: [*_seed_flight(), *_seed_oom_text()]),
    "snapshot": Target(read_snapshot, _seed_snapshot, memory_bytes=1 << 30),
    "flight": Target(read_flight, _seed_flight),
    "oom-text": Target(read_oom_text, _seed_oom_text),
    "metrics": Target(read_metrics, _seed_metrics),
    "owners": Target(read_owners, _seed_owners),
    "modules": Target(read_modules, _seed_modules),
    "phases": Target(read_phases, _seed_phases),
    "identify": Target(identify_file, _seed_samples),
    "serving-log": Target(read_serving_text, _seed_serving),
    "sweep-log": Target(read_sweep_log, _seed_sweep_log),
    "config": Target(read_configs, _seed_configs),
    "table": Target(read_table, lambda: [b'case,num_layers,hidden\na,2,64\n"b,c",3,\n']),
    "settings": Target(read_settings, lambda: [_SETTINGS, b"color = false\n"]),
    "cluster": Target(read_cluster_text, _seed_cluster),
    "kernel": Target(read_kernel_files, _seed_kernel),
    "peer-tells": Target(peers.hear, peers.seed_told),
    "peer-asks": Target(peers.ask, peers.seed_asked),
    "peer-reports": Target(peers.gather, peers.seed_gathered),
}
"""By the name under which each is run, and under which its finds are kept."""
