"""Start-up logs of vLLM, SGLang and llama.cpp: what they say of their memory.

Sizes are as printed: vLLM's and SGLang's `GB` are GiB. The words in front of a line name its rank
(`Worker_TP0`, `TP0`); a line without them belongs to the only rank.
"""

import re
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from ..errors import InputFileError
from ..model.serving import FailureKind, RankStart, ServerFailure, ServerName, StartLog
from ..units import GIB, MIB
from .base.input_file import show_name, show_path
from .base.packed_file import CHUNK_BYTES, PackedFile
from .framework.oom_text import parse_oom_text

# A server says all of this in its first minutes; later lines repeat only errors.
_MOST_BYTES = 256 * MIB
_MOST_LINE = 32_768
_MOST_RANKS = 4096
_MOST_SIZE = 1 << 50
_MOST_FAILURES = 100
_SEARCHED_CHUNKS = 64
_MARKS: tuple[tuple[ServerName, bytes], ...] = (
    ("vLLM", b"LLM engine (v"),
    ("vLLM", b"Available KV cache memory"),
    ("vLLM", b"reserved for KV Cache is"),
    ("vLLM", b"GPU KV cache size: "),
    ("SGLang", b"KV Cache is allocated."),
    ("SGLang", b"Load weight end."),
    ("llama.cpp", b"KV buffer size ="),
)
_NUMBER = r"(-?[\d.,]{1,20})"
_RANK = re.compile(
    r"\((?:Vllm)?Worker(?:Process)?[_ ]?([\w= ]{0,40}?) ?pid=\d+\)|\[[\d: -]{19}((?: [A-Z]{2}\d{1,4})+)\]"
)


class _Rule(NamedTuple):
    """A phrase, and what its groups give to a rank: names of fields of `RankStart`, and the unit."""

    pattern: re.Pattern[str]
    fields: tuple[str, ...]
    unit: int = GIB


def _rule(text: str, *fields: str, unit: int = GIB) -> _Rule:
    return _Rule(re.compile(text.replace("#", _NUMBER)), fields, unit)


_RULES = (
    _rule(r"Model loading took # ?Gi?B", "weights_bytes"),
    _rule(r"Loading model weights took # ?GB", "weights_bytes"),
    _rule(
        r"total_gpu_memory \(# ?GiB\) x gpu_memory_utilization \([\d.]+\) = # ?GiB",
        "device_bytes",
        "share_bytes",
    ),
    _rule(
        r"model weights take # ?GiB; non_torch_memory takes # ?GiB; "
        r"PyTorch activation peak memory takes # ?GiB; "
        r"the rest of the memory reserved for KV Cache is # ?GiB",
        "weights_bytes",
        "libraries_bytes",
        "activations_bytes",
        "cache_bytes",
    ),
    _rule(
        r"torch peak memory increase: # ?GiB; non-torch forward increase memory: # ?GiB",
        "activations_bytes",
        "libraries_bytes",
    ),
    _rule(r"Available KV cache memory: # GiB", "cache_bytes"),
    _rule(r"worker requested memory: # ?GiB", "share_bytes"),
    _rule(r"total_memory=# ?GiB", "device_bytes"),
    _rule(
        r"Free memory on device \([\d.]+/# GiB\) on startup\. "
        r"Desired GPU memory utilization is \([\d.]+, # GiB\)",
        "device_bytes",
        "share_bytes",
    ),
    _rule(r"# GiB for peak activation", "activations_bytes"),
    _rule(r"Graph capturing finished in \d+ secs?, took # GiB", "graphs_bytes"),
    _rule(r"CUDA graph pool memory: # GiB \(actual\)", "graphs_bytes"),
    # SGLang.
    _rule(r"Load weight end\..{0,200}mem usage=# ?GB", "weights_bytes"),
    _rule(r"KV Cache is allocated\..{0,100}, KV size: # ?GB", "cache_bytes"),
    _rule(r"Capture cuda graph end\..{0,100}mem usage=# ?GB", "graphs_bytes"),
)
_HALVES = re.compile(f"K size: {_NUMBER} ?GB, V size: {_NUMBER} ?GB")
_STATES = re.compile(f"conv_state size: {_NUMBER} ?GB, ssm_state size: {_NUMBER} ?GB")
_BUFFERS = re.compile(
    f"[ :]((?:CUDA|ROCm|Vulkan|SYCL|Metal)\\w{{0,20}}) (model|KV|compute) buffer size = *{_NUMBER} MiB"
)
_BUFFER_FIELDS = {"model": "weights_bytes", "KV": "cache_bytes", "compute": "activations_bytes"}
_ENGINE = re.compile(r"LLM engine \(v([\w.+-]{1,60})\) with config: ")
_MODEL = re.compile(r"\bmodel='([^'\n]{1,300})'")
_TOKENS = re.compile(
    r"GPU KV cache size: (\d[\d,]{0,14}) tokens|#tokens: (\d{1,15})|# (?:GPU|cuda|CUDA) blocks: (\d{1,15})"
)
_CONCURRENCY = re.compile(r"Maximum concurrency for (\d[\d,]{0,14}) tokens per request: ([\d.]{1,15})x")
_BLOCK_TOKENS = 16
_TOO_LONG = re.compile(
    r"max seq len \((\d{1,12})\), \(([\d.]{1,15}) GiB KV cache is needed, which is larger than the available "
    r"KV cache memory \(([\d.]{1,15}) GiB\)(?:.{0,80}estimated maximum model length is (\d{1,12}))?"
)
_TOO_LONG_OLD = re.compile(
    r"max seq len \((\d{1,12})\) is larger than the maximum number of tokens that can be stored in KV cache "
    r"\((\d{1,12})\)"
)
_NO_CACHE = "No available memory for the cache blocks"
_TOO_FULL = re.compile(
    r"Free memory on device \(([\d.]{1,15})/[\d.]{1,15} GiB\) on startup is less than desired GPU memory "
    r"utilization \([\d.]{1,15}, ([\d.]{1,15}) GiB\)"
)


def recognize_serving_log(path: Path) -> ServerName | None:
    """Return the server that wrote a log, by words near its beginning; None for any other file."""
    file = PackedFile(path)
    kept = b""
    try:
        for data in islice(file.chunks(), _SEARCHED_CHUNKS):
            text = kept + data
            if b"\0" in data[:CHUNK_BYTES]:
                return None
            for server, mark in _MARKS:
                if mark in text:
                    return server
            kept = data[-64:]
    finally:
        file.close()
    return None


def read_serving_log(path: Path, *, most_bytes: int = _MOST_BYTES) -> StartLog:
    """Read what a start-up log says of memory; of values that are repeated the last.

    Args:
        most_bytes: How much of its beginning to read.

    Raises:
        InputFileError: It cannot be read, or no server that is known wrote it.
    """
    server = recognize_serving_log(path)
    if server is None:
        raise InputFileError(
            f"{show_path(path)}: not the start-up log of a server; expected one of vLLM, SGLang or llama.cpp"
        )
    reader = _Reader(show_name(path), server)
    file = PackedFile(path)
    number = 0
    size = 0
    rest = b""
    try:
        for data in file.chunks():
            size += len(data)
            *lines, rest = (rest + data).split(b"\n")
            rest = rest[:_MOST_LINE]
            for line in lines:
                number += 1
                reader.add(number, line[:_MOST_LINE].decode("utf-8", "replace"))
            if size > most_bytes:
                break
        reader.add(number + 1, rest.decode("utf-8", "replace"))
    finally:
        file.close()
    return reader.build()


# Lines without any of these words say nothing of memory; most lines of a long log are such.
_HINT = re.compile(
    r"LLM engine|loading|weights|memory|KV Cache |KV cache (?:size|memory|is|\()|Graph capturing"
    r"|Load weight end|cuda graph|buffer size|concurrency for|# (?:GPU|CUDA|cuda) blocks"
)


class _Reader:
    """What was read so far."""

    def __init__(self, file: str, server: ServerName) -> None:
        self._file = file
        self._server = server
        self._ranks: dict[str, dict[str, int]] = {}
        self._failures: dict[tuple[FailureKind, int | None], ServerFailure] = {}
        self._version: str | None = None
        self._model: str | None = None
        self._degrees: dict[str, int] = {}
        self._tokens: int | None = None
        self._sequence: int | None = None
        self._concurrency: float | None = None

    def add(self, number: int, line: str) -> None:
        if _HINT.search(line) is None and _STATES.search(line) is None:
            return
        self._add_engine(line)
        self._add_sizes(line)
        self._add_room(line)
        self._add_failure(number, line)

    def _add_engine(self, line: str) -> None:
        engine = _ENGINE.search(line)
        if engine is None:
            return
        self._version = engine[1]
        model = _MODEL.search(line)
        self._model = None if model is None else model[1]
        for name in ("tensor_parallel_size", "pipeline_parallel_size", "max_seq_len"):
            found = re.search(rf"\b{name}=(\d{{1,12}})", line)
            if found is not None:
                self._degrees[name] = int(found[1])
        self._sequence = self._degrees.get("max_seq_len", self._sequence)

    def _add_sizes(self, line: str) -> None:
        rank = _RANK.search(line)
        name = "" if rank is None else (rank[1] or rank[2] or "").strip()
        for rule in _RULES:
            found = rule.pattern.search(line)
            if found is not None:
                for field, text in zip(rule.fields, found.groups(), strict=True):
                    self._keep(name, field, _measure(text, rule.unit))
        for pattern, field in ((_HALVES, "cache_bytes"), (_STATES, "states_bytes")):
            halves = pattern.search(line)
            if halves is not None:
                parts = [_measure(text, GIB) for text in halves.groups()]
                self._keep(name, field, None if None in parts else sum(part or 0 for part in parts))
        buffer = _BUFFERS.search(line)
        if buffer is not None:
            self._keep(buffer[1], _BUFFER_FIELDS[buffer[2]], _measure(buffer[3], MIB), adds=buffer[2] == "KV")

    def _keep(self, rank: str, field: str, size: int | None, *, adds: bool = False) -> None:
        """Keep a size; windows and whole layers have caches of their own, which add up."""
        if size is None or (rank not in self._ranks and len(self._ranks) >= _MOST_RANKS):
            return
        sizes = self._ranks.setdefault(rank, {})
        sizes[field] = min(_MOST_SIZE, sizes.get(field, 0) + size) if adds else size

    def _add_room(self, line: str) -> None:
        tokens = _TOKENS.search(line)
        if tokens is not None:
            number = int((tokens[1] or tokens[2] or tokens[3]).replace(",", ""))
            self._tokens = number * _BLOCK_TOKENS if tokens[3] else number
        concurrency = _CONCURRENCY.search(line)
        if concurrency is not None:
            self._sequence = int(concurrency[1].replace(",", ""))
            self._concurrency = _parse(concurrency[2])

    def _add_failure(self, number: int, line: str) -> None:
        for find in (_find_too_long, _find_old_too_long, _find_no_cache, _find_too_full, _find_oom):
            failure = find(number, line)
            if failure is None:
                continue
            # A log repeats an error, for each rank and each layer of its traceback.
            key = (failure.kind, failure.needed_bytes)
            if key not in self._failures and len(self._failures) < _MOST_FAILURES:
                self._failures[key] = failure
            return

    def build(self) -> StartLog:
        shared = self._ranks.pop("", {}) if len(self._ranks) > 1 else {}
        ranks = [
            RankStart(name=name or "0", **{**shared, **sizes}) for name, sizes in sorted(self._ranks.items())
        ]
        return StartLog(
            file=self._file,
            server=self._server,
            version=self._version,
            model=self._model,
            tensor=self._degrees.get("tensor_parallel_size"),
            pipeline=self._degrees.get("pipeline_parallel_size"),
            ranks=tuple(ranks),
            tokens=self._tokens,
            sequence=self._sequence,
            concurrency=self._concurrency,
            failures=tuple(sorted(self._failures.values(), key=lambda failure: failure.line)),
        )


def _find_too_long(number: int, line: str) -> ServerFailure | None:
    found = _TOO_LONG.search(line)
    if found is None:
        return None
    return ServerFailure(
        kind="sequence too long",
        line=number,
        needed_bytes=_measure(found[2], GIB),
        found_bytes=_measure(found[3], GIB),
        longest=int(found[4]) if found[4] else None,
    )


def _find_old_too_long(number: int, line: str) -> ServerFailure | None:
    found = _TOO_LONG_OLD.search(line)
    return (
        None if found is None else ServerFailure(kind="sequence too long", line=number, longest=int(found[2]))
    )


def _find_no_cache(number: int, line: str) -> ServerFailure | None:
    return ServerFailure(kind="no cache", line=number) if _NO_CACHE in line else None


def _find_too_full(number: int, line: str) -> ServerFailure | None:
    found = _TOO_FULL.search(line)
    if found is None:
        return None
    return ServerFailure(
        kind="device too full",
        line=number,
        needed_bytes=_measure(found[2], GIB),
        found_bytes=_measure(found[1], GIB),
    )


def _find_oom(number: int, line: str) -> ServerFailure | None:
    found = parse_oom_text(line)
    if found is None:
        return None
    return ServerFailure(
        kind="out of memory", line=number, needed_bytes=found.asked_bytes, found_bytes=found.free_bytes
    )


def _measure(text: str, unit: int) -> int | None:
    value = _parse(text)
    return None if value is None or not abs(value) * unit <= _MOST_SIZE else round(value * unit)


def _parse(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None
