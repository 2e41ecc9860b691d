"""The memory plan in a server's start-up log, as JSON and as plain text."""

from collections.abc import Iterator

import msgspec

from ...analyzers.sentence import count
from ...analyzers.serving.start import StartAdvice, advise_start, find_fullest, sum_share
from ...engine.model.serving import RankStart, ServerFailure, StartLog
from ...engine.units import format_bytes
from ..text import UNKNOWN, format_rows, wrap

SCHEMA = "vramscope.serving-log/1"
# Parts and share are printed with two digits; more than this is a part that the log does not name.
_LEAST_GAP = 0.01


class FailureReport(msgspec.Struct, frozen=True, kw_only=True):
    """A failure, and what would help."""

    failure: ServerFailure
    advice: tuple[StartAdvice, ...]


class ServingLogReport(msgspec.Struct, frozen=True, kw_only=True):
    """The memory plan of a server when it started."""

    schema: str = SCHEMA
    log: StartLog
    token_bytes: int | None
    """Cache of one token on a rank; null where the log does not have both sizes."""
    failures: tuple[FailureReport, ...]


def summarize_serving_log(log: StartLog) -> ServingLogReport:
    rank = find_fullest(log)
    token_bytes = None
    if log.tokens and rank is not None and rank.cache_bytes is not None and rank.cache_bytes > 0:
        token_bytes = round(rank.cache_bytes / log.tokens)
    return ServingLogReport(
        log=log,
        token_bytes=token_bytes,
        failures=tuple(
            FailureReport(failure=failure, advice=tuple(advise_start(log, failure)))
            for failure in log.failures
        ),
    )


def describe_serving_log(report: ServingLogReport, width: int) -> str:
    return "\n".join(_describe(report, width)) + "\n"


def _describe(report: ServingLogReport, width: int) -> Iterator[str]:
    log = report.log
    yield from wrap(_describe_server(log), width)
    if log.tokens is not None:
        yield from wrap(_describe_cache(report, log.tokens), width)
    for each in report.failures:
        yield from wrap(f"Line {each.failure.line:,}: {_describe_failure(each.failure)}", width)
        if each.advice:
            yield from wrap(f"Try {' or '.join(map(_describe_advice, each.advice))}.", width, indent="  ")
    if not log.ranks:
        return
    for sentence in _describe_gaps(log):
        yield from wrap(sentence, width)
    yield ""
    head = ["rank", "device", "share", "weights", "activations", "libraries", "states", "cache", "graphs"]
    rows = [_list_rank(rank) for rank in log.ranks]
    # Columns that no rank has are left out.
    used = [place for place in range(len(head)) if any(row[place] != UNKNOWN for row in rows)]
    table = [[row[place] for place in used] for row in [head, *rows]]
    yield from format_rows(table, "l" + "r" * (len(used) - 1), width)


def _describe_server(log: StartLog) -> str:
    version = f" {log.version}" if log.version else ""
    model = f" with {log.model}" if log.model else ""
    degrees = f", TP {log.tensor} PP {log.pipeline or 1}" if log.tensor else ""
    return f"{log.file}: the start of {log.server}{version}{model}, {count(len(log.ranks), 'rank')}{degrees}."


def _describe_cache(report: ServingLogReport, tokens: int) -> str:
    log = report.log
    text = f"Its cache keeps {tokens:,} tokens"
    if report.token_bytes is not None:
        text += f", {format_bytes(report.token_bytes)} a token on a rank"
    if log.concurrency is not None and log.sequence is not None:
        text += f"; {log.concurrency:g} sequences of {log.sequence:,} tokens fit at once"
    return text + "."


def _describe_failure(failure: ServerFailure) -> str:
    needed = format_bytes(failure.needed_bytes) if failure.needed_bytes is not None else None
    found = format_bytes(failure.found_bytes) if failure.found_bytes is not None else None
    if failure.kind == "sequence too long":
        sizes = f": it needs {needed} of cache, and there are {found}" if needed and found else ""
        return f"the longest sequence does not fit into the cache{sizes}."
    if failure.kind == "no cache":
        return "weights, activations and libraries leave nothing of the server's share for a cache."
    if failure.kind == "device too full":
        return f"the server's share is {needed}, but only {found} of the device were free when it started."
    free = f" with {found} free" if found else ""
    return (
        f"out of memory on a request of {needed}{free}: it came from outside of the plan, since the cache "
        "itself was taken at the start."
    )


def _describe_advice(advice: StartAdvice) -> str:
    if advice.value is not None:
        return f"{advice.flag} {advice.value:g}" if advice.value < 1 else f"{advice.flag} {advice.value:.0f}"
    change = {"--tensor-parallel-size": "a greater", "--gpu-memory-utilization": "a smaller"}
    return f"{change.get(advice.flag, 'a smaller')} {advice.flag}"


def _describe_gaps(log: StartLog) -> Iterator[str]:
    rank = find_fullest(log)
    if rank is None or rank.share_bytes is None:
        return
    total = sum_share(rank)
    if total is not None:
        gap = rank.share_bytes - total
        fits = abs(gap) <= _LEAST_GAP * rank.share_bytes
        yield (
            f"The parts of a rank add up to its share of {format_bytes(rank.share_bytes)}."
            if fits
            else f"The parts of a rank are {format_bytes(abs(gap))} {'less' if gap > 0 else 'more'} than its "
            f"share of {format_bytes(rank.share_bytes)}, which the log does not explain."
        )
    if rank.device_bytes is not None:
        rest = rank.device_bytes - rank.share_bytes
        graphs = f"; graphs took {format_bytes(rank.graphs_bytes)}" if rank.graphs_bytes else ""
        yield (
            f"Outside of the share are {format_bytes(max(0, rest))} of the device, for contexts, graphs and "
            f"whatever else runs there{graphs}."
        )


def _list_rank(rank: RankStart) -> list[str]:
    sizes = (
        rank.device_bytes,
        rank.share_bytes,
        rank.weights_bytes,
        rank.activations_bytes,
        rank.libraries_bytes,
        rank.states_bytes,
        rank.cache_bytes,
        rank.graphs_bytes,
    )
    return [rank.name, *(UNKNOWN if size is None else _show(size) for size in sizes)]


def _show(size_bytes: int) -> str:
    return format_bytes(size_bytes) if size_bytes >= 0 else f"-{format_bytes(-size_bytes)}"
