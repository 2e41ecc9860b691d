"""The servers of models in a recording as rows: one engine at one time, each reading once."""

from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, NamedTuple, TextIO

from ...engine.model import EngineReading, Sample, ServerSample
from ...engine.unmeasured import sum_all
from .rows import PLACES, Cell, Values, write_csv_table, write_table


class ServerRow(NamedTuple):
    """One reading of one engine; of a server without a reading, one row without an engine."""

    time_s: float
    """When the server answered, in seconds of the recording's clock."""
    node: str
    server: ServerSample
    engine: EngineReading | None

    @property
    def used_tokens(self) -> int | None:
        it = self.engine
        if it is None or it.used_share is None or it.pool_tokens is None:
            return None
        return round(it.used_share * it.pool_tokens)

    @property
    def device_bytes(self) -> int | None:
        """Bytes that the processes of the whole server hold of devices; None where one is unmeasured."""
        devices = self.server.devices
        return sum_all(it.used_bytes for it in devices) if devices else None


def _of_engine(name: str) -> Callable[[ServerRow], Cell]:
    return lambda row: None if row.engine is None else getattr(row.engine, name)


SERVER_COLUMNS: tuple[tuple[str, str, Callable[[ServerRow], Cell]], ...] = (
    ("time_s", "double", lambda row: row.time_s),
    ("node", "string", lambda row: row.node),
    ("server", "string", lambda row: row.server.name),
    ("kind", "string", lambda row: row.server.kind),
    ("model", "string", lambda row: row.server.model),
    ("state", "string", lambda row: row.server.state),
    ("is_simulated", "bool", lambda row: row.server.is_simulated),
    ("engine", "string", lambda row: None if row.engine is None else row.engine.name),
    ("running", "int64", _of_engine("running")),
    ("waiting", "int64", _of_engine("waiting")),
    ("pool_tokens", "int64", _of_engine("pool_tokens")),
    ("used_share", "double", _of_engine("used_share")),
    ("used_tokens", "int64", lambda row: row.used_tokens),
    ("cached_tokens", "int64", _of_engine("cached_tokens")),
    ("preemptions", "int64", _of_engine("preemptions")),
    ("rejections", "int64", _of_engine("rejections")),
    ("finished", "int64", _of_engine("finished")),
    ("prompt_tokens", "int64", _of_engine("prompt_tokens")),
    ("generation_tokens", "int64", _of_engine("generation_tokens")),
    ("prefix_queries", "int64", _of_engine("prefix_queries")),
    ("prefix_hits", "int64", _of_engine("prefix_hits")),
    ("server_device_bytes", "int64", lambda row: row.device_bytes),
)
"""Name, type and value of each column; counters are since the start of the server."""


class ServerRowReader:
    """Makes rows of samples; a reading that samples repeat until the next one is one row."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, str], tuple[float, ServerSample]] = {}

    def rows(self, samples: Iterable[Sample]) -> Iterator[ServerRow]:
        for sample in samples:
            for server in sample.servers:
                yield from self._read(sample, server)

    def _read(self, sample: Sample, server: ServerSample) -> Iterator[ServerRow]:
        key = (sample.node, server.name)
        time_s = round(sample.time_s - (server.age_s or 0.0), PLACES)
        last = self._newest.get(key)
        if last is not None:
            last_s, before = last
            is_same = server.engines == before.engines and server.state == before.state
            # The age of an answer is known to a tick only: the same numbers a moment later are one reading.
            if time_s < last_s or (is_same and time_s - last_s < sample.interval_s):
                return
        self._newest[key] = (time_s, server)
        for engine in server.engines or (None,):
            yield ServerRow(time_s, sample.node, server, engine)


def write_server_csv(rows: Iterable[ServerRow], stream: TextIO) -> None:
    """Write rows with a header; an empty cell is unmeasured."""
    write_csv_table((name for name, _, _ in SERVER_COLUMNS), map(_to_values, rows), stream)


def write_server_parquet(rows: Iterable[ServerRow], stream: BinaryIO) -> None:
    """Write rows as one table; null is unmeasured.

    Raises:
        PackageMissingError: pyarrow is not installed.
        InputFileError: A value does not fit.
    """
    columns = tuple((name, kind) for name, kind, _ in SERVER_COLUMNS)
    write_table(columns, map(_to_values, rows), stream)


def _to_values(row: ServerRow) -> Values:
    return tuple(read(row) for _, _, read in SERVER_COLUMNS)
