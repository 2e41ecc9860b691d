"""Estimates of memory before a run as text, JSON and a figure."""

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from ..analyzers.planning.steps import CapacityCheck, Share, StepEstimate
from ..analyzers.planning.theory import MemoryPart, RankMemory, TrainingSetup
from ..analyzers.planning.theory.calibration import Calibration
from ..analyzers.planning.theory.configs import TrainingRun
from ..analyzers.planning.theory.configs.audit import name_not_counted
from ..analyzers.planning.theory.configs.cases import MOST_RANKS, FittingChange, find_fitting_changes
from ..analyzers.sentence import count, count_cells
from ..engine.units import GIB, format_bytes, format_gib, format_share
from .annotations import MOST_SHOWN, Annotation, Level
from .figures.style import INK, LINES, PAPER, open_page, save_file, show_text, title_axes
from .text import UNKNOWN, describe_assumptions, format_range, format_rows, wrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# An estimate as an object of `vramscope estimate --json`.

SCHEMA = "vramscope.estimate/1"


class MomentReport(msgspec.Struct, frozen=True, kw_only=True):
    """One moment of a step."""

    name: str
    """`between steps`, `backward`, `loss`, or with sharded gradients `reduction`."""
    total_bytes: int
    parts: tuple[MemoryPart, ...]


class StageReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank of one pipeline stage holds."""

    stage: int
    layers: tuple[int, ...]
    """Layers it holds, from 0."""
    parameters: int
    in_flight: int
    """Most pieces of forward work held at once."""
    allocated_bytes: int
    """Allocated between steps."""
    peak_bytes: int
    peak_moment: str
    moments: tuple[MomentReport, ...]


Bound = Literal["none", "at_least", "at_most", "open"]


class EstimateReport(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of a training run, stage by stage."""

    schema: str = SCHEMA
    theory: str = "vramscope"
    run: TrainingRun
    world_size: int
    fullest_stage: int
    """The stage with the greatest peak."""
    allocated_bytes: int
    """Bytes of the fullest stage between steps."""
    peak_bytes: int
    calibration: Calibration | None = None
    """What calibration adds to the two values above; stages and parts are as in the theory."""
    gpu: str | None = None
    """The card that was named; `run.setup.gpu` is the one whose workspace sizes the theory uses for it."""
    capacity_bytes: int | None = None
    """Capacity it is compared with: the one given, else that of the card."""
    bound: Bound
    """What the peak is where flags are not counted (`run.not_counted`): what a rank needs at least, at most,
    or neither; else `none`."""
    does_fit: bool | None = None
    """Whether the peak is within `FIT_SHARE` of the capacity; null without one, and where a bound leaves it
    open."""
    changes: tuple[FittingChange, ...] | None = None
    """Where the estimate does not fit: the smallest changes with which it does, each by itself; else null.

    With a bound of `at_least` or `open` such a run may still not fit."""
    stages: tuple[StageReport, ...]


FIT_SHARE = 0.9
"""Share of the capacity up to which a job is called fitting: contexts, NCCL and gaps take their part too."""


def build_estimate(
    run: TrainingRun,
    stages: Sequence[RankMemory],
    capacity_bytes: int | None = None,
    calibration: Calibration | None = None,
) -> EstimateReport:
    """Return an estimate as an object, shifted where a calibration is given."""
    fullest = max(stages, key=lambda memory: memory.peak_bytes)
    allocated = fullest.allocated_bytes
    peak = fullest.peak_bytes
    if calibration is not None:
        allocated, peak = calibration.shift(allocated, peak)
    fits = None if capacity_bytes is None else peak <= FIT_SHARE * capacity_bytes
    bound = find_bound(run)
    changes = None
    if fits is False and capacity_bytes is not None:
        changes = find_fitting_changes(
            run, FIT_SHARE * capacity_bytes, lambda tried: _measure_peak(tried, calibration)
        )
    return EstimateReport(
        run=run,
        world_size=run.layout.world_size,
        fullest_stage=fullest.stage,
        allocated_bytes=allocated,
        peak_bytes=peak,
        calibration=calibration,
        capacity_bytes=capacity_bytes,
        bound=bound,
        does_fit=_judge(fits, bound),
        changes=changes,
        stages=msgspec.convert(tuple(stages), tuple[StageReport, ...], from_attributes=True),
    )


def find_bound(run: TrainingRun) -> Bound:
    """Return what an estimate is where a run has features that are not counted."""
    effects = {each.effect for each in run.not_counted}
    if not effects:
        return "none"
    if effects == {"more"}:
        return "at_least"
    return "at_most" if effects == {"less"} else "open"


def _judge(does_fit: bool | None, bound: Bound) -> bool | None:
    """Return whether a peak fits: it is open where what is not counted could change the answer."""
    return None if bound in ("open", "at_least" if does_fit else "at_most") else does_fit


def _measure_peak(stages: Sequence[RankMemory], calibration: Calibration | None) -> int:
    fullest = max(stages, key=lambda memory: memory.peak_bytes)
    if calibration is None:
        return fullest.peak_bytes
    return calibration.shift(fullest.allocated_bytes, fullest.peak_bytes)[1]


# An estimate as plain text: one line a stage, and what the fullest stage holds when it holds most.

_LEAST_NOTICED = 0.05
"""A line with a smaller share of the peak gets no annotation."""
_LEAST_SHARE = 0.001
"""Parts smaller than this share of the peak are summed up in one row."""


def describe_estimate(report: EstimateReport, width: int) -> str:
    return "\n".join(_describe(report, width)) + "\n"


def describe_formula(result: str, run: TrainingRun, width: int) -> str:
    """Return the estimate of another formula, a sentence, and what it assumes."""
    return "\n".join((*wrap(result, width), *wrap(describe_assumptions(run.assumptions), width))) + "\n"


def _describe(report: EstimateReport, width: int) -> Iterator[str]:
    yield from wrap(_describe_verdict(report), width)
    yield from wrap(_describe_run(report), width)
    yield from wrap(describe_assumptions(report.run.assumptions), width)
    yield from wrap(_describe_not_counted(report), width) if report.run.not_counted else ()
    yield from wrap(_describe_changes(report), width) if report.changes is not None else ()
    yield ""
    head = ["stage", "layers", "parameters", "in flight", "between steps GiB", "peak GiB", "at"]
    rows = [head, *(_describe_stage(stage) for stage in report.stages)]
    yield from format_rows(rows, "rrrrrrl", width)
    yield ""
    fullest = report.stages[[stage.stage for stage in report.stages].index(report.fullest_stage)]
    yield f"stage {fullest.stage} at its peak ({fullest.peak_moment}):"
    yield from format_rows(_list_parts(fullest), "lrrl", width)


def _describe_verdict(report: EstimateReport) -> str:
    limit = {"at_least": "at least ", "at_most": "at most "}.get(report.bound, "")
    peak = f"{limit}{format_bytes(report.peak_bytes)}"
    text = f"{report.run.name}: an estimated peak of {peak} allocated on a rank"
    if report.calibration is not None:
        runs = count(report.calibration.runs, "run")
        text += f" (calibrated by {report.calibration.source}, {runs}; stages and parts are the theory's)"
    if report.capacity_bytes is None:
        return text + "."
    capacity = format_bytes(report.capacity_bytes)
    if report.does_fit:
        return f"{text}: fits into {capacity}."
    if report.does_fit is None:
        return f"{text}: cannot be said whether it fits into {capacity}, since not everything is counted."
    if report.peak_bytes <= report.capacity_bytes:
        return f"{text}: more than {format_share(FIT_SHARE)} of {capacity}; too close to be sure."
    return f"{text}: does not fit into {capacity}."


def _describe_not_counted(report: EstimateReport) -> str:
    effect = {
        "at_least": "a rank needs more than the estimate",
        "at_most": "a rank may need less than the estimate",
    }.get(report.bound, "a rank may need more or less than the estimate")
    return f"Not counted: {name_not_counted(report.run.not_counted)}; {effect}."


def _describe_changes(report: EstimateReport) -> str:
    if not report.changes:
        # A peak that may be too high rules nothing out.
        effect = "brings the estimate that low" if report.bound in ("at_most", "open") else "makes it fit"
        return (
            f"No change {effect}; tried: up to three changes of ZeRO stage, recompute, micro-batch, "
            f"TP and PP, on up to {MOST_RANKS} times the ranks."
        )
    ways = [
        f"{' '.join(change.flags)} ({format_bytes(change.peak_bytes)}"
        + (f" on {count(change.world_size, 'rank')})" if change.world_size != report.world_size else ")")
        for change in report.changes
    ]
    if _judge(True, report.bound) is None:
        changes = ", or with ".join(ways)
        return f"The estimate would be low enough with {changes}; whether it fits then cannot be said."
    return f"By the same estimate it would fit with {', or with '.join(ways)}."


def _describe_adapters(setup: TrainingSetup) -> str:
    if not setup.adapter_rank:
        return ""
    weights = "NF4 weights" if setup.has_nf4_weights else "weights"
    return f"adapters of rank {setup.adapter_rank} in fp32, frozen {weights}; "


def _describe_run(report: EstimateReport) -> str:
    layout = report.run.layout
    setup = report.run.setup
    degrees = f"TP {layout.tensor} PP {layout.pipeline} DP {layout.data}"
    degrees += f" CP {layout.context}" if layout.context > 1 else ""
    degrees += f" EP {layout.expert}" if layout.expert > 1 else ""
    degrees += f" x {layout.virtual_stages} pieces" if layout.virtual_stages > 1 else ""
    degrees += " with sequence parallelism" if layout.is_sequence_parallel else ""
    batches = count(setup.micro_batches, "micro-batch")
    batch = f"{batches} of {setup.micro_batch_size} x {setup.seq_length} tokens"
    return (
        f"{count(report.world_size, 'rank')}, {degrees}; ZeRO {setup.zero_stage}; {batch}; "
        f"recompute {setup.recompute}; {setup.attention} attention; "
        f"{_describe_adapters(setup) or _describe_states(setup)}{report.gpu or setup.gpu.upper()}."
    )


def _describe_states(setup: TrainingSetup) -> str:
    numbers = setup.numbers
    sizes = (numbers.weight_bytes, numbers.gradient_bytes, numbers.master_bytes, numbers.moment_bytes)
    return f"{' + '.join(map(str, sizes))} bytes a parameter; "


def _describe_stage(stage: StageReport) -> list[str]:
    layers = f"{stage.layers[0]}-{stage.layers[-1]}" if stage.layers else UNKNOWN
    is_whole = not stage.layers or stage.layers[-1] - stage.layers[0] + 1 == len(stage.layers)
    return [
        str(stage.stage),
        layers if is_whole else f"{len(stage.layers)}",
        f"{stage.parameters:,}",
        str(stage.in_flight),
        format_gib(stage.allocated_bytes, 2),
        format_gib(stage.peak_bytes, 2),
        stage.peak_moment,
    ]


def _list_parts(stage: StageReport) -> list[list[str]]:
    moment = next(moment for moment in stage.moments if moment.name == stage.peak_moment)
    least = _LEAST_SHARE * moment.total_bytes
    large = sorted(
        (part for part in moment.parts if part.size_bytes >= least), key=lambda part: -part.size_bytes
    )
    rest = moment.total_bytes - sum(part.size_bytes for part in large)
    rows = [(part.name, part.size_bytes, part.group) for part in large]
    rows += [("smaller parts", rest, "")] if rest else []
    return [
        [name, format_bytes(size), format_share(size / moment.total_bytes, 1), group]
        for name, size, group in rows
    ]


# The estimate of a training step as plain text: the peak, its moment, the live memory then, whether it fits.

MOST_ROWS = 12
MOST_READINGS = 4


def describe_step_estimate(estimate: StepEstimate, width: int) -> str:
    return "\n".join(_describe_step(estimate, width)) + "\n"


def _describe_step(estimate: StepEstimate, width: int) -> Iterator[str]:
    yield from wrap(_describe_peak(estimate), width)
    yield from wrap(_describe_moment(estimate), width)
    yield from wrap(_describe_card(estimate), width)
    for sentence in _describe_method(estimate):
        yield from wrap(sentence, width)
    if estimate.capacity is not None:
        yield from wrap(_describe_capacity(estimate.capacity, estimate), width)
    yield ""
    rows = [["phase", "most live", "in"]]
    rows += [[each.phase, format_bytes(each.live_bytes), each.module or UNKNOWN] for each in estimate.phases]
    yield from format_rows(rows, "lrl", width)
    for title, shares in (("kind", estimate.kinds), ("module", estimate.modules)):
        yield ""
        yield from format_rows(_list_shares(f"{title} at the peak", shares, estimate), "lrr", width)
    yield ""
    yield "lines that hold most at the peak, innermost first:"
    yield from _list_lines(estimate, width)


def _describe_peak(estimate: StepEstimate) -> str:
    settings = f" ({estimate.allocator_settings})" if estimate.allocator_settings else ""
    depth = f", {estimate.layers} layers" if estimate.layers is not None else ""
    text = (
        f"{estimate.factory}{depth}: {estimate.label}: a step allocates "
        f"{format_bytes(estimate.allocated_peak_bytes)} at its peak, and PyTorch reserves "
        f"{format_bytes(estimate.reserved_peak_bytes)}{settings}"
    )
    if estimate.expandable_reserved_bytes is not None:
        text += f"; {format_bytes(estimate.expandable_reserved_bytes)} with expandable_segments:True"
    return text + "."


def _describe_card(estimate: StepEstimate) -> str:
    parts = [
        f"{part.name} {format_range(part.least_bytes, part.most_bytes)}"
        for part in estimate.outside
        if part.most_bytes
    ]
    named = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
    card = "A card" if estimate.gpu is None else f"A card of the kind {estimate.gpu}"
    return (
        f"{card} with room would show {format_range(estimate.card_least_bytes, estimate.card_most_bytes)} as "
        f"used, most likely {format_bytes(estimate.card_likely_bytes)}: with {named}, which no tensor holds."
    )


def _describe_moment(estimate: StepEstimate) -> str:
    where = f" in {estimate.peak_module}" if estimate.peak_module else ""
    return (
        f"The peak is in the {estimate.peak_phase} phase{where}, with "
        f"{format_bytes(estimate.live_peak_bytes)} in live tensors."
    )


def _describe_method(estimate: StepEstimate) -> Iterator[str]:
    if estimate.ranks is not None:
        yield (
            f"The step of rank {estimate.rank} of {estimate.ranks}, traced in {estimate.traced_s:.1f} s; no "
            "other process ran."
        )
    if estimate.traced_layers:
        depths = ", ".join(str(depth) for depth in estimate.traced_layers)
        yield f"Extrapolated from models of {depths} layers; --full traces the full depth."
    check = estimate.check
    if check is not None:
        live = _compare(check.predicted_live_bytes, check.traced_live_bytes)
        reserved = _compare(check.predicted_reserved_bytes, check.traced_reserved_bytes)
        yield (
            f"Checked at {check.layers} layers, predicted from the shallower ones: live {live}, reserved "
            f"{reserved}. "
            "Expect the same error in the reserved peak, plus or minus a segment of 20 MiB."
        )
    if estimate.fallback is not None:
        yield f"Traced with real tensors on this host, because fake tensors failed: {estimate.fallback}"
    if estimate.made_with:
        yield f"The factory returned a module; its step has {' and '.join(estimate.made_with)}."
    if estimate.readings:
        named = ", ".join(estimate.readings[:MOST_READINGS])
        more = len(estimate.readings) - MOST_READINGS
        yield (
            f"Values of tensors were read at {named}{f' and {more} more lines' if more > 0 else ''}; "
            "tensors have none here, so these lines got 1 for a number."
        )
    for part in estimate.outside:
        if part.note is not None:
            yield f"{part.name}: {part.note}."
    if estimate.compiled_graphs:
        graphs = count(estimate.compiled_graphs, "graph")
        yield (
            f"torch.compile: {graphs} traced as the programs that Inductor writes for CUDA allocate and "
            "reuse buffers; not compared with a GPU."
        )
    if estimate.run_eagerly:
        yield (
            "torch.compile: what could not be compiled here was traced as it is, so its size is an upper "
            f"bound: {'; '.join(estimate.run_eagerly)}."
        )
    if estimate.is_upper_bound:
        yield "Tensors whose sizes depend on values have their largest sizes: an upper bound."


def _compare(predicted: int, traced: int) -> str:
    return "exact" if predicted == traced else f"{100 * (predicted - traced) / traced:+.1f} %"


def _describe_capacity(check: CapacityCheck, estimate: StepEstimate) -> str:
    card = format_bytes(check.capacity_bytes)
    most = format_bytes(check.outside_most_bytes)
    least = format_bytes(check.outside_least_bytes)
    if check.does_fit is None:
        return _describe_doubt(check, estimate)
    if check.reserved_peak_bytes is None:
        how = f"with {most if check.does_fit else least} for what no tensor holds, by extrapolation"
        return f"It {'fits' if check.does_fit else 'does not fit'} into {card}, {how}."
    reserved = format_bytes(check.reserved_peak_bytes)
    if check.does_fit:
        times = "once" if check.retries == 1 else f"{check.retries} times"
        again = f" after releasing its cache {times}" if check.retries else ""
        return f"It fits into {card}, {most} of it for what no tensor holds: reserved {reserved}{again}."
    frames = check.failed_frames
    line = f", {frames[0][0]}:{frames[0][1]}" if frames else ""
    module = f" of {check.failed_module}" if check.failed_module else ""
    return (
        f"It does not fit into {card}, {least} of it for what no tensor holds: out of memory in the "
        f"{check.failed_phase} phase{module}{line}, requesting {format_bytes(check.failed_bytes)}."
    )


def _describe_doubt(check: CapacityCheck, estimate: StepEstimate) -> str:
    """Return why it is open whether a step fits."""
    card = format_bytes(check.capacity_bytes)
    most = format_bytes(check.outside_most_bytes)
    least = format_bytes(check.outside_least_bytes)
    if check.enough_bytes is not None:
        return (
            f"Too close to say from shallow models whether it fits into {card}: its tensors need at least "
            f"{format_bytes(estimate.allocated_peak_bytes)}; {format_bytes(check.enough_bytes)} would be "
            f"enough, and what no tensor holds takes {least} to {most}. Use --full."
        )
    return (
        f"Too close to say whether it fits into {card}: it does if what no tensor holds takes {least}, and "
        f"not if it takes {most}. --context SIZE says what the CUDA context takes on your GPU."
    )


def _list_shares(title: str, shares: Sequence[Share], estimate: StepEstimate) -> list[list[str]]:
    total = estimate.live_peak_bytes
    large = [share for share in shares[:MOST_ROWS] if share.size_bytes >= _LEAST_SHARE * total]
    rows = [(share.name, share.size_bytes) for share in large]
    rest = total - sum(size for _, size in rows)
    rows += [("smaller ones", rest)] if rest else []
    return [
        [title, "bytes", "share"],
        *([name, format_bytes(size), format_share(size / total, 1)] for name, size in rows),
    ]


def _list_lines(estimate: StepEstimate, width: int) -> Iterator[str]:
    for share in estimate.stacks[:MOST_ROWS]:
        if share.size_bytes < _LEAST_SHARE * estimate.live_peak_bytes:
            return
        part = format_share(share.size_bytes / estimate.live_peak_bytes, 1)
        line = f"  {format_bytes(share.size_bytes):>9}  {part:>7}"
        for file, number, name in share.frames:
            place = f"  {PurePath(file).name}:{number} {name}"
            if count_cells(line + place) > width:
                break
            line += place
        yield line if share.frames else f"{line}  outside your own code"


# Estimates as annotations of a pull request.


def annotate_estimate(report: EstimateReport) -> Iterator[Annotation]:
    yield Annotation(
        _choose_level(report.does_fit, has_capacity=report.capacity_bytes is not None),
        f"{report.run.name}: {format_bytes(report.peak_bytes)} estimated",
        _describe_verdict(report),
    )


def annotate_step(estimate: StepEstimate) -> Iterator[Annotation]:
    """Yield whether it fits, at the line that does not, then the lines that hold most at the peak."""
    check = estimate.capacity
    reserved = format_bytes(estimate.reserved_peak_bytes)
    verdict = f"reserved peak of {reserved}, {estimate.label}"
    file, number, _ = (
        check.failed_frames[0] if check is not None and check.failed_frames else (None, None, "")
    )
    yield Annotation(
        _choose_level(None if check is None else check.does_fit, has_capacity=check is not None),
        f"{estimate.factory}: {reserved} estimated",
        verdict if check is None else f"{verdict}. {_describe_capacity(check, estimate)}",
        file,
        number,
    )
    own = [share for share in estimate.stacks if share.frames]
    for share in own[: MOST_SHOWN - 1]:
        if share.size_bytes < _LEAST_NOTICED * estimate.live_peak_bytes:
            return
        file, number, name = share.frames[0]
        part = format_share(share.size_bytes / estimate.live_peak_bytes)
        yield Annotation(
            "notice",
            f"{format_bytes(share.size_bytes)} at the peak, estimated",
            f"{part} of what is live at the peak was allocated here, in {name}",
            file,
            number,
        )


def _choose_level(does_fit: bool | None, *, has_capacity: bool) -> Level:
    if does_fit is False:
        return "error"
    return "warning" if does_fit is None and has_capacity else "notice"


# Figure of an estimate: a bar for each pipeline stage, with its memory at its peak.

_BAR_IN = 0.34
_FRAME_IN = 1.35
_MOST_IN = 9.0


class StackedShare(NamedTuple):
    label: str
    colour: str
    hatch: str
    names: tuple[str, ...]
    """Groups and parts that it sums up."""


SHARES = (
    StackedShare("weights", "#0072b2", "", ("weights", "fp8 copies")),
    StackedShare("gradients", "#7fb8d8", "///", ("gradients", "gradient copies")),
    StackedShare("optimizer", "#404040", "", ("master weights", "optimizer")),
    StackedShare("activations", "#e69f00", "", ("activations",)),
    StackedShare("logits and loss", "#f6d9a0", "...", ("loss",)),
    StackedShare("buffers and libraries", "#b3b3b3", "\\\\\\", ("communication", "libraries", "rounding")),
)
"""In the order of the bar; shades differ in lightness or hatching too, not in colour alone."""


def draw_estimate(report: EstimateReport, path: Path) -> None:
    """Draw every stage at its peak, and the capacity where one is given.

    Args:
        path: The file, whose name ends in `.pdf`, `.png` or `.svg`.

    Raises:
        OutputFileError: The folder is missing or cannot be written to.
    """
    height_in = min(_MOST_IN, _FRAME_IN + _BAR_IN * len(report.stages))
    with open_page(height_in) as page:
        axes = page.add_subplot()
        subtitle = f"{count(report.world_size, 'rank')}; at most {format_bytes(report.peak_bytes)} on a rank"
        if report.calibration is not None:
            subtitle += f", calibrated by {report.calibration.source}; bars are the theory's"
        title = f"{report.run.name}: estimated memory of each pipeline stage at its peak"
        title_axes(axes, show_text(title), show_text(subtitle))
        _draw_bars(axes, report.stages)
        _draw_capacity(axes, report)
        _frame(axes, report.stages)
        page.legend(loc="outside lower center", ncols=4)
        save_file(page, path)


def _draw_bars(axes: "Axes", stages: Sequence[StageReport]) -> None:
    ends = [0.0] * len(stages)
    for share in SHARES:
        sizes = [_sum_share(stage, share) / GIB for stage in stages]
        axes.barh(
            range(len(stages)),
            sizes,
            left=ends,
            height=0.72,
            color=share.colour,
            hatch=share.hatch,
            edgecolor=PAPER,
            linewidth=0.5,
            label=share.label,
        )
        ends = [end + size for end, size in zip(ends, sizes, strict=True)]
    for place, (stage, end) in enumerate(zip(stages, ends, strict=True)):
        axes.annotate(
            f"{end:.1f}  {stage.peak_moment}",
            (end, place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=7,
            color=INK,
        )


def _sum_share(stage: StageReport, share: StackedShare) -> int:
    moment = next(moment for moment in stage.moments if moment.name == stage.peak_moment)
    return sum(
        part.size_bytes for part in moment.parts if part.name in share.names or part.group in share.names
    )


def _draw_capacity(axes: "Axes", report: EstimateReport) -> None:
    if report.capacity_bytes is None:
        return
    from matplotlib.patheffects import Normal, Stroke

    style = LINES["capacity"]
    # The line is as dark as one of the shades; light edges keep it apart from that.
    edge = Stroke(linewidth=style.width_pt + 2, foreground=PAPER)
    axes.axvline(
        report.capacity_bytes / GIB,
        color=style.colour,
        linestyle=style.dashes,
        linewidth=style.width_pt,
        path_effects=[edge, Normal()],
        label=f"capacity, {format_bytes(report.capacity_bytes)}",
    )


def _frame(axes: "Axes", stages: Sequence[StageReport]) -> None:
    axes.set_yticks(range(len(stages)), [f"stage {stage.stage}" for stage in stages])
    axes.set_ylim(len(stages) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", visible=True)
    axes.margins(x=0.16)
    axes.set_xlim(left=0)
    axes.set_xlabel("GiB")
