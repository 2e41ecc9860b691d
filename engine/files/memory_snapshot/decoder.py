"""The process that unpickles: it refuses every global, and the kernel bounds its memory, time and reach.

Pickle is a program for a machine of its own. Without globals it cannot call anything, but a few bytes can
still ask for gigabytes (a memo index, nested references) or overrun the C stack. Here that ends a process
with nothing to lose, not the one that somebody looks at. The reader's process also stays free to draw. And if
the unpickler has a hole, whoever comes through it can open no file, socket or program.
"""

import gc
import io
import os
import pickle
import resource
import sys
import zlib
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from ...errors import InputFileError
from ...model.memory_snapshot import MemorySnapshot
from ...sandbox import confine_decoder
from ...units import MIB
from ..base.packed_file import GzipStream
from .reader import GZIP_MARK, Reply, convert_tree, encode_reply

_PICKLE_MARKS = tuple(bytes((0x80, protocol)) for protocol in range(2, 6))
_EXPECTATION = "expected a memory snapshot from torch.cuda.memory._dump_snapshot (pickle protocol 2 to 5)"
_FAILURES = (
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    OverflowError,
    ImportError,
    OSError,
    zlib.error,
)


# From this size on, unpacked or not, the events of a trace are read at once: numpy takes 0.1 s to load.
_LARGE_BYTES = 8 * MIB
_LARGE_PACKED_BYTES = MIB


class _PlainUnpickler(pickle.Unpickler):
    """Builds dicts, lists, tuples, text and numbers only."""

    def find_class(self, module: str, name: str) -> NoReturn:
        """Refuse a global: it could be any code."""
        raise InputFileError(
            f"it asks for the Python object {ascii(module)[1:-1]}.{ascii(name)[1:-1]}, which is not loaded; "
            "expected only dicts, lists, text and numbers"
        )

    def persistent_load(self, pid: object) -> NoReturn:
        raise InputFileError(
            f"it refers to an object outside of the file ({ascii(pid)[:40]}); "
            "expected only dicts, lists, text and numbers"
        )


def main() -> None:
    """Decode standard input to standard output: `decoder BYTES_OF_MEMORY SECONDS`."""
    limit_bytes = int(sys.argv[1])
    limit_s = int(sys.argv[2])
    # Everything lives until the end, so there is nothing to collect.
    gc.disable()
    with open(sys.stdin.fileno(), "rb", closefd=False) as stream:
        are_events_many = _is_large(stream) and _load_numpy()
        _limit_resources(limit_bytes, limit_s)
        # All modules are loaded by now.
        confine_decoder()
        reply = encode_reply(decode(stream, are_events_many=are_events_many))
    sys.stdout.buffer.write(reply)
    sys.stdout.buffer.flush()
    # Freeing millions of objects one by one would take longer than leaving.
    os._exit(0)


def _is_large(stream: io.BufferedReader) -> bool:
    size_bytes = os.fstat(stream.fileno()).st_size
    is_packed = stream.peek(2)[:2] == GZIP_MARK
    return size_bytes >= (_LARGE_PACKED_BYTES if is_packed else _LARGE_BYTES)


def _load_numpy() -> bool:
    """Load numpy, which is optional, before no file can be opened any more; return whether it is there.

    Its libraries must start no threads, since the kernel confines only the one that asks for it.
    """
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    try:
        from . import event_runs  # noqa: F401 - it is used once this process is confined
    except ImportError:
        return False
    return len(os.listdir("/proc/self/task")) == 1  # noqa: PTH208 - as numbers


def decode(stream: io.BufferedReader, *, are_events_many: bool = False) -> Reply:
    """Decode a snapshot.

    Args:
        stream: It can be read again from its start.
        are_events_many: Try to read the events of its traces at once, which needs numpy and memory for two
            copies of the file.
    """
    try:
        if are_events_many:
            snapshot = _convert_at_once(stream)
            if snapshot is not None:
                return Reply(snapshot=snapshot)
            stream.seek(0)
        return Reply(snapshot=convert_tree(_load(stream)))
    except InputFileError as error:
        return Reply(refusal=str(error))
    except RecursionError:
        return Reply(refusal=f"it is nested too deeply; {_EXPECTATION}")
    except MemoryError:
        return Reply(is_out_of_memory=True)


def _convert_at_once(stream: io.BufferedReader) -> MemorySnapshot | None:
    """Return a snapshot whose events were read at once; None where it is to be read in the usual way."""
    from .event_runs import OtherFormError, read_at_once, read_framed

    try:
        content = _unpack(stream)
        if content.peek(2)[:2] not in _PICKLE_MARKS:
            return None
        root, runs = read_at_once(*read_framed(content), _unpickle)
        return convert_tree(root, runs)
    except (*_FAILURES, InputFileError, OtherFormError, RecursionError, MemoryError):
        # It may still be sound; if not, the usual way says what is wrong.
        return None


def _unpack(stream: io.BufferedReader) -> io.BufferedReader:
    if stream.peek(2)[:2] == GZIP_MARK:
        return io.BufferedReader(GzipStream(stream), MIB)
    return stream


def _unpickle(data: bytes) -> object:
    # The unpickler looks ahead only in such a stream.
    return _PlainUnpickler(io.BufferedReader(io.BytesIO(data), MIB)).load()


def _load(stream: io.BufferedReader) -> object:
    try:
        content = _unpack(stream)
        head = content.peek(4)[:4]
        if head[:2] not in _PICKLE_MARKS:
            raise InputFileError(f"{_describe_head(head)}; {_EXPECTATION}")
        return _PlainUnpickler(content).load()
    except _FAILURES as error:
        raise InputFileError(f"{_explain(error)}; {_EXPECTATION}") from error


def _describe_head(head: bytes) -> str:
    if head[:2] == b"PK":
        return "it is a zip archive, such as torch.save writes"
    if head[:1] in (b"{", b"["):
        return "it is text, perhaps JSON"
    if not head:
        return "it is empty"
    return f"it begins with {head[:4].hex(' ')} and is not a pickle"


def _explain(error: BaseException) -> str:
    if isinstance(error, EOFError) or "truncated" in str(error) or "Ran out of input" in str(error):
        return "the file is cut short; its writer may not have finished"
    reason = " ".join(str(error).split())[:120]
    return f"it is damaged ({ascii(reason)[1:-1] or type(error).__name__})"


def _limit_resources(limit_bytes: int, limit_s: int) -> None:
    """Make the kernel end this process, and this one first, if a file asks for too much."""
    with suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        held_bytes = pages * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held_bytes + limit_bytes, held_bytes + limit_bytes))
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 5))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
