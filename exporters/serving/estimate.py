"""The estimate of a server as plain text."""

from collections.abc import Iterator

from ...analyzers.planning.serving import PoolPlan, RankPlan, ServingReport, Span
from ...analyzers.sentence import count
from ...engine.units import format_bytes, format_share
from ..text import UNKNOWN, format_range, format_rows, wrap


def describe_serving(report: ServingReport, width: int) -> str:
    return "\n".join(_describe(report, width)) + "\n"


def _describe(report: ServingReport, width: int) -> Iterator[str]:
    yield from wrap(_describe_ranks(report), width)
    if report.pool is not None:
        for sentence in _describe_pool(report, report.pool):
            yield from wrap(sentence, width)
    if report.assumptions:
        yield from wrap(f"Assumed, since no flag says it: {', '.join(report.assumptions)}.", width)
    if report.model.notes:
        yield from wrap(f"Not counted: {'; '.join(report.model.notes)}.", width)
    yield ""
    yield from format_rows(_list_stages(report), "rrrrr", width)
    yield ""
    fullest = max(report.stages, key=lambda rank: rank.weights_bytes)
    yield f"weights of a rank of stage {fullest.stage}, linear layers in {report.model.weights.name}:"
    yield from format_rows(
        [[part.name, format_bytes(part.size_bytes)] for part in fullest.weights], "lr", width
    )


def _describe_ranks(report: ServingReport) -> str:
    setup = report.setup
    fullest = max(report.stages, key=lambda rank: rank.weights_bytes)
    caches = [f"{format_bytes(fullest.token_bytes)} a token"]
    if fullest.state_bytes:
        caches.append(f"{format_bytes(fullest.state_bytes)} a sequence, whatever its length")
    return (
        f"{report.name}: {report.parameters / 1e9:.2f} billion parameters; "
        f"{count(report.ranks, 'rank')}, TP {setup.tensor} PP {setup.pipeline}. An estimated "
        f"{format_bytes(fullest.weights_bytes)} of weights on a rank; its cache takes {' and '.join(caches)}."
    )


def _describe_pool(report: ServingReport, pool: PoolPlan) -> Iterator[str]:
    setup = report.setup
    device = format_bytes(pool.capacity_bytes)
    named = f" ({report.gpu})" if report.gpu else ""
    yield (
        f"The server's share of {device}{named} is {format_bytes(pool.requested_bytes)} "
        f"({format_share(setup.utilization)}). Activations take {_span(pool.activations_bytes)} of it, and "
        f"libraries {_span(pool.runtime_bytes)}."
    )
    length = f"{setup.sequence:,} tokens"
    if pool.pool_bytes.most <= 0:
        yield "Weights, activations and libraries leave nothing for a cache."
    else:
        yield (
            f"That leaves {_span(pool.pool_bytes)} for the cache: {_number(pool.tokens)} tokens, or "
            f"{_number(pool.sequences)} sequences of {length}."
        )
    if pool.does_fit:
        yield f"It fits: the cache holds a sequence of {length} also at the least."
    elif pool.does_fit is None:
        yield (
            f"Too close to say whether a sequence of {length} fits: it depends on the version of the server. "
            "A shorter --seq leaves more room."
        )
    else:
        other = (
            f" By the same estimate it would with --tp {pool.fitting_tensor}." if pool.fitting_tensor else ""
        )
        yield f"It does not fit: the cache cannot hold a sequence of {length}.{other}"
    beyond = " and ".join(
        f"{part.name} {format_range(part.least_bytes, part.most_bytes)}" for part in pool.beyond
    )
    yield f"Outside of its share the device also has {beyond}."


def _list_stages(report: ServingReport) -> list[list[str]]:
    head = ["stage", "layers", "weights", "cache of a token", "state of a sequence"]
    return [head, *(_describe_stage(rank) for rank in report.stages)]


def _describe_stage(rank: RankPlan) -> list[str]:
    return [
        str(rank.stage),
        str(rank.layers),
        format_bytes(rank.weights_bytes),
        format_bytes(rank.token_bytes),
        format_bytes(rank.state_bytes) if rank.state_bytes else UNKNOWN,
    ]


def _span(span: Span) -> str:
    """Return the likely size, and the range where it is wide enough to see."""
    likely = format_bytes(max(0, span.likely))
    return f"{likely} ({format_range(max(0, span.least), max(0, span.most))})"


def _number(span: Span) -> str:
    if span.least == span.most:
        return f"{span.likely:,}"
    return f"{span.likely:,} ({span.least:,} to {span.most:,})"
