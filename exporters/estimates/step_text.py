"""The estimate of a training step as plain text: the peak, its moment, what is live then, whether it fits."""

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from ...analyzers.planning.steps import CapacityCheck, Share, StepEstimate
from ...analyzers.sentence import count_cells
from ...engine.units import format_bytes
from ..text_table import format_rows, wrap

MOST_ROWS = 12
_LEAST_SHARE = 0.001


def describe_step_estimate(estimate: StepEstimate, width: int) -> str:
    """Return the text.

    Args:
        estimate: What was estimated.
        width: Cells of a line.
    """
    return "\n".join(_describe(estimate, width)) + "\n"


def _describe(estimate: StepEstimate, width: int) -> Iterator[str]:
    yield from wrap(_describe_peak(estimate), width)
    yield from wrap(_describe_moment(estimate), width)
    for sentence in _describe_method(estimate):
        yield from wrap(sentence, width)
    if estimate.capacity is not None:
        yield from wrap(_describe_capacity(estimate.capacity, estimate), width)
    yield ""
    rows = [["phase", "most live", "in"]]
    rows += [[each.phase, format_bytes(each.live_bytes), each.module or "—"] for each in estimate.phases]
    yield from format_rows(rows, "lrl", width)
    for title, shares in (("kind", estimate.kinds), ("module", estimate.modules)):
        yield ""
        yield from format_rows(_list_shares(f"{title} at the peak", shares, estimate), "lrr", width)
    yield ""
    yield "lines with the most at the peak, innermost first:"
    yield from _list_lines(estimate, width)


def _describe_peak(estimate: StepEstimate) -> str:
    settings = f" ({estimate.allocator_settings})" if estimate.allocator_settings else ""
    text = (
        f"{estimate.factory}{_describe_depth(estimate)}: {estimate.label}: a step allocates "
        f"{format_bytes(estimate.allocated_peak_bytes)} at its peak, and PyTorch reserves "
        f"{format_bytes(estimate.reserved_peak_bytes)}{settings}"
    )
    if estimate.expandable_reserved_bytes is not None:
        text += f"; {format_bytes(estimate.expandable_reserved_bytes)} with expandable_segments:True"
    return text + "."


def _describe_depth(estimate: StepEstimate) -> str:
    return f", {estimate.layers} layers" if estimate.layers is not None else ""


def _describe_moment(estimate: StepEstimate) -> str:
    where = f" in {estimate.peak_module}" if estimate.peak_module else ""
    return (
        f"The peak is in the {estimate.peak_phase} phase{where}, with "
        f"{format_bytes(estimate.live_peak_bytes)} in live tensors."
    )


def _describe_method(estimate: StepEstimate) -> Iterator[str]:
    if estimate.traced_layers:
        depths = ", ".join(str(depth) for depth in estimate.traced_layers)
        yield f"Extrapolated from models of {depths} layers; --full traces the whole depth."
    check = estimate.check
    if check is not None:
        live = _compare(check.predicted_live_bytes, check.traced_live_bytes)
        reserved = _compare(check.predicted_reserved_bytes, check.traced_reserved_bytes)
        yield (
            f"Checked at {check.layers} layers, from the shallower ones: live {live}, reserved {reserved}; "
            "take the reserved peak as no surer than that, give or take a segment of 20 MiB."
        )
    if estimate.fallback is not None:
        yield f"Made with real tensors on this host, as it cannot be faked: {estimate.fallback}"


def _compare(predicted: int, traced: int) -> str:
    return "exact" if predicted == traced else f"{(predicted - traced) / traced:+.1%}"


def _describe_capacity(check: CapacityCheck, estimate: StepEstimate) -> str:
    context = format_bytes(check.context_bytes)
    card = f"{format_bytes(check.capacity_bytes)}, {context} of it for the CUDA context"
    if check.does_fit is None:
        least = estimate.allocated_peak_bytes
        enough = check.enough_bytes
        return (
            f"Whether it fits into {card}, is too close to tell from shallow models: beside the context it "
            f"needs at least {format_bytes(least)}, and {format_bytes(enough)} would do. --full tells."
        )
    if check.reserved_peak_bytes is None:
        return f"It {'fits' if check.does_fit else 'does not fit'} into {card}, by the extrapolated figures."
    reserved = format_bytes(check.reserved_peak_bytes)
    if check.does_fit:
        again = f" after giving back its cache {_times(check.retries or 0)}" if check.retries else ""
        return f"It fits into {card}: reserved {reserved}{again}."
    frames = check.failed_frames
    line = f", {frames[0][0]}:{frames[0][1]}" if frames else ""
    module = f" of {check.failed_module}" if check.failed_module else ""
    return (
        f"It does not fit into {card}: out of memory in the {check.failed_phase} phase{module}{line}, asking "
        f"for {format_bytes(check.failed_bytes)}."
    )


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _list_shares(title: str, shares: Sequence[Share], estimate: StepEstimate) -> list[list[str]]:
    total = estimate.live_peak_bytes
    large = [share for share in shares[:MOST_ROWS] if share.size_bytes >= _LEAST_SHARE * total]
    rows = [(share.name, share.size_bytes) for share in large]
    rest = total - sum(size for _, size in rows)
    rows += [("smaller ones", rest)] if rest else []
    return [
        [title, "bytes", "share"],
        *([name, format_bytes(size), f"{size / total:.1%}"] for name, size in rows),
    ]


def _list_lines(estimate: StepEstimate, width: int) -> Iterator[str]:
    for share in estimate.stacks[:MOST_ROWS]:
        if share.size_bytes < _LEAST_SHARE * estimate.live_peak_bytes:
            return
        part = f"{share.size_bytes / estimate.live_peak_bytes:.1%}"
        line = f"  {format_bytes(share.size_bytes):>8}  {part:>6}"
        for file, number, name in share.frames:
            place = f"  {PurePath(file).name}:{number} {name}"
            if count_cells(line + place) > width:
                break
            line += place
        yield line if share.frames else f"{line}  outside your own code"
