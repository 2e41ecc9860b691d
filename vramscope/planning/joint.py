"""`plan_cluster`: all degrees of parallelism at once, for the devices of a cluster."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypedDict, Unpack

import msgspec
from msgspec.structs import replace

from vramscope.analyzers.planning.cluster import (
    DEVICES,
    Cluster,
    build_cluster,
    is_short_form,
    make_collective_table,
    make_measured_cluster,
    parse_short_form,
)
from vramscope.analyzers.planning.joint import JointOptions, JointPlan, plan_jointly
from vramscope.analyzers.planning.joint.space import find_gpu
from vramscope.analyzers.planning.theory import ModelShape, ParallelLayout, TrainingSetup, check_all
from vramscope.analyzers.planning.theory.configs.assumptions import list_assumptions
from vramscope.analyzers.planning.theory.configs.audit import list_not_counted
from vramscope.analyzers.planning.theory.configs.document import Described, choose_tokens
from vramscope.analyzers.planning.theory.configs.flags import (
    MICRO_BATCHES,
    RECOMPUTE_EVERY,
    Flags,
    TrainingRun,
)
from vramscope.analyzers.planning.theory.configs.megatron import read_setup
from vramscope.analyzers.planning.theory.presets import PRESETS
from vramscope.analyzers.planning.theory.shape import Recompute
from vramscope.analyzers.planning.time import (
    TimeAssumptions,
    TimedRun,
    describe_speed,
    fit_layer_profile,
    fit_runs,
)
from vramscope.analyzers.sentence import count
from vramscope.engine.errors import InputFileError, NothingFitsError, UsageError
from vramscope.engine.files.base.input_file import show_path
from vramscope.engine.files.case_table import read_case_table
from vramscope.engine.files.cluster_file import read_cluster_file
from vramscope.engine.files.galvatron import read_galvatron_hardware, read_layer_profile
from vramscope.engine.text import suggest
from vramscope.engine.units import format_share
from vramscope.exporters.plan.joint import describe_joint_plan, report_joint_plan
from vramscope.exporters.text import NOTEBOOK_WIDTH, format_html

from .model_graph import describe_model


def read_cluster(cluster: str | Path) -> Cluster:
    """Return the cluster that a text or a file describes.

    Args:
        cluster: A cluster file (TOML, JSON or YAML), or a short form: `128x8xh100` is 128 nodes of 8 devices,
            `16x8xl40s:ib-hdr` names the network too, `a100-80gb@FOLDER` has the bandwidths of Galvatron's
            hardware profiles in a folder, `local` is this machine.

    Raises:
        UsageError: The text has another form, or an unknown name.
        SourceUnavailableError: `local`, and the driver reports no device.
        InputFileError: The file cannot be read.
    """
    text = str(cluster)
    if text == "local":
        from vramscope.analyzers.planning.cluster.building import make_local_cluster
        from vramscope.engine.sampling.live import node_name
        from vramscope.engine.sources.nvml.topology import read_topology

        return make_local_cluster(read_topology(), node_name())
    device, at, folder = text.partition("@")
    if at and device.lower() in DEVICES:
        return make_measured_cluster(read_galvatron_hardware(Path(folder)), device, text)
    path = Path(cluster)
    if at and not path.exists() and (Path(folder).is_dir() or not path.suffix):
        hint = suggest(device.lower(), DEVICES, f"the devices are {', '.join(DEVICES)}")
        raise UsageError(f"cluster {text}: unknown device {device!r}; {hint}")
    if not path.exists() and (is_short_form(text) or not (path.suffix or "/" in text)):
        return parse_short_form(text)
    return _read_path(path)


def _read_path(path: Path) -> Cluster:
    if path.is_dir():
        raise InputFileError(
            f"{show_path(path)}: a folder of profiles does not name its devices; write their name before it, "
            f'for example a100-80gb@{show_path(path)}, or give a cluster file with galvatron = "…"'
        )
    entry, where = read_cluster_file(path)
    if entry.galvatron is None:
        return build_cluster(entry, where)
    measured = read_galvatron_hardware(path.parent / entry.galvatron)
    plain = build_cluster(entry, where)
    table = make_collective_table(measured, len(plain.nodes), len(plain.nodes[0].devices))
    return replace(plain, measured=table)


TIME_COLUMN = "iteration_ms"
RECOMPUTES: dict[str, Recompute] = {"none": "none", "selective": "selective", "full": "full"}
MOST_NUMBER = 10**9


def learn_times(path: Path, shape: ModelShape, cluster: Cluster, options: JointOptions) -> TimeAssumptions:
    """Return assumptions about times that fit a file of measured times.

    Args:
        path: CSV with `tp`, `pp`, `mbs` and `iteration_ms`, and where they differ from the plan `dp`, `gbs`,
            `seq`, `zero`, `recompute`, `seq_parallel`, `pieces`; or JSON, a computation profile of Galvatron
            measured on devices like those of the cluster.
        shape: The model that ran; for a profile only if its file's name is not a known model.
    """
    if path.suffix == ".json":
        return _learn_from_profile(path, shape, cluster)
    table = read_case_table(path)
    shown = show_path(path)
    missing = [name for name in ("tp", "pp", "mbs", TIME_COLUMN) if name not in table.columns]
    if missing:
        raise InputFileError(
            f"{shown}: line 1: missing column {', '.join(missing)}; expected tp, pp, mbs, {TIME_COLUMN}"
        )
    runs = [
        _read_run(_Row(f"{shown}: row {number}", row), shape, cluster, options)
        for number, row in enumerate(table.rows, start=1)
    ]
    return fit_runs(runs, cluster, TimeAssumptions(), path.name)


def _learn_from_profile(path: Path, shape: ModelShape, cluster: Cluster) -> TimeAssumptions:
    profile = read_layer_profile(path)
    return fit_layer_profile(
        profile.forward_s,
        PRESETS.get(profile.model or "", shape),
        TrainingSetup(seq_length=profile.seq_length, micro_batch_size=profile.batch),
        describe_speed(cluster.devices[0]),
        TimeAssumptions(),
        path.name,
    )


class _Row:
    def __init__(self, where: str, cells: dict[str, str]) -> None:
        self._where = where
        self._cells = cells

    def count(self, name: str, default: int) -> int:
        """Return a whole number; the default for an empty cell."""
        text = self._cells.get(name, "").strip()
        if not text:
            return default
        if not text.isdecimal() or not int(text) <= MOST_NUMBER:
            raise self.refuse(name, text, "a whole number")
        return int(text)

    def read_seconds(self) -> float:
        text = self._cells.get(TIME_COLUMN, "").strip()
        try:
            milliseconds = float(text)
        except ValueError:
            milliseconds = 0.0
        if not 0 < milliseconds < MOST_NUMBER:
            raise self.refuse(TIME_COLUMN, text, "milliseconds above 0")
        return milliseconds / 1000

    def read_recompute(self, default: Recompute) -> Recompute:
        text = self._cells.get("recompute", "").strip()
        if text and text not in RECOMPUTES:
            raise self.refuse("recompute", text, "none, selective or full")
        return RECOMPUTES.get(text, default)

    def is_set(self, name: str) -> bool:
        """Return whether a cell is 1, true or yes."""
        return self._cells.get(name, "").strip().lower() in ("1", "true", "yes")

    def refuse(self, name: str, text: str, expected: str) -> InputFileError:
        return InputFileError(f"{self._where}, {name}: {text[:40]!r}; expected {expected}")

    def refuse_all(self, error: UsageError) -> InputFileError:
        return InputFileError(f"{self._where}: {error}")


def _read_run(row: _Row, shape: ModelShape, cluster: Cluster, options: JointOptions) -> TimedRun:
    tensor = row.count("tp", 1)
    pipeline = row.count("pp", 1)
    ranks = max(1, tensor * pipeline * options.context)
    data = row.count("dp", max(1, len(cluster.devices) // ranks))
    size = row.count("mbs", 1)
    layout = ParallelLayout(
        tensor=tensor,
        pipeline=pipeline,
        data=data,
        context=options.context,
        is_sequence_parallel=row.is_set("seq_parallel"),
        virtual_stages=row.count("pieces", 1),
    )
    setup = replace(
        options.make_setup(),
        seq_length=row.count("seq", options.seq_length),
        micro_batch_size=size,
        micro_batches=row.count("gbs", options.global_batch) // max(1, data * size),
        zero_stage=row.count("zero", 1),
        recompute=row.read_recompute("none"),
    )
    try:
        check_all(shape, _spread(layout, shape), setup)
        if layout.world_size > len(cluster.devices):
            raise UsageError(
                f"{layout.world_size} ranks on {len(cluster.devices)} devices; expected at most one on each"
            )
    except UsageError as error:
        raise row.refuse_all(error) from error
    return TimedRun(shape=shape, layout=_spread(layout, shape), setup=setup, step_s=row.read_seconds())


def _spread(layout: ParallelLayout, shape: ModelShape) -> ParallelLayout:
    """Return a layout with stages as even as possible where PP does not divide the layers."""
    stages = layout.pipeline
    if stages < 1 or layout.virtual_stages > 1 or shape.layers % stages == 0 or stages > shape.layers:
        return layout
    share, rest = divmod(shape.layers, stages)
    sizes = tuple(share + (stage >= stages - rest) for stage in range(stages))
    return msgspec.structs.replace(layout, stage_layers=sizes)


class PlanChoices(TypedDict, total=False):
    """What `plan_cluster` chooses from; defaults are those of `JointOptions`."""

    max_tensor: int | None
    """Most tensor-parallel ranks; None for the devices of the smallest node."""
    zero_stages: Sequence[int]
    recomputes: Sequence[Recompute]
    """Some of `none`, `selective` and `full`."""
    max_micro_batch: int
    """Most sequences in a micro-batch."""
    context: int
    """Context-parallel ranks."""
    memory_share: float
    """Share of each device's memory that a plan may fill, 0 to 1."""
    top: int
    """Number of configurations to return, each with different degrees."""


class ShownPlan(JointPlan, frozen=True, kw_only=True):
    """A plan that a notebook shows as the text that `vramscope plan --cluster` prints."""

    def _repr_html_(self) -> str:
        return format_html(describe_joint_plan(report_joint_plan(self), NOTEBOOK_WIDTH))


def plan_cluster(
    model: str | Path,
    cluster: Cluster | str | Path,
    *,
    global_batch: int,
    seq_length: int | None = None,
    efficiency: float | None = None,
    measured_times: str | Path | None = None,
    **choices: Unpack[PlanChoices],
) -> JointPlan:
    """Return the fastest configurations that fit, the fastest first; times and bytes are estimates.

    Args:
        model: A known name or a configuration file, as for `vramscope estimate`.
        cluster: A cluster, or an argument of `read_cluster`: a file, a short form, or `local`.
        global_batch: Sequences in a step, over all ranks.
        seq_length: Tokens in a sequence; None for those of the file, else 4,096, or fewer if the model has
            fewer positions.
        efficiency: Share of the peak speed that large matrix products reach, 0 to 1; None for the default.
        measured_times: A file of measured times, see `learn_times`.
        choices: What to choose from, see `PlanChoices`.

    Raises:
        UsageError: A name, size or option is invalid, or nothing fits; the text says what fits.
        InputFileError: A file cannot be read.
    """
    described = describe_model(model)
    shape = described.shape
    where = cluster if isinstance(cluster, Cluster) else read_cluster(cluster)
    tokens = choose_tokens(described) if seq_length is None else seq_length
    options = JointOptions(
        global_batch=global_batch, seq_length=tokens, training=_read_training(described, tokens, where)
    )
    options = replace(options, **_settle(choices))
    assumptions = TimeAssumptions()
    if measured_times is not None:
        assumptions = learn_times(Path(measured_times), shape, where, options)
    if efficiency is not None:
        assumptions = replace(assumptions, product_efficiency=efficiency)
    given = set(choices)
    given |= {"seq_length"} if seq_length is not None else set()
    given |= {"efficiency"} if efficiency is not None or assumptions.calibration is not None else set()
    assumed = tuple(_list_assumed(described, where, options, assumptions, given))
    try:
        plan = plan_jointly(Path(model).name, shape, where, options, assumptions)
    except NothingFitsError as error:
        raise NothingFitsError(str(error), assumed=assumed) from None
    known = {name: getattr(plan, name) for name in plan.__struct_fields__}
    return ShownPlan(**known | {"not_counted": list_not_counted(Flags(described.flags)), "assumed": assumed})


def _read_training(described: Described, tokens: int, cluster: Cluster) -> TrainingSetup:
    """Return how a model is trained, apart from what a plan decides, as `estimate` reads it.

    Of what depends on the layout it has the most; the plan reduces it by each layout.
    """
    decided = (
        "recompute-granularity",
        "recompute-activations",
        "recompute-method",
        "recompute-modules",
        "recompute-num-layers",
        RECOMPUTE_EVERY,
        "distribute-saved-activations",
    )
    flags = {**described.flags, **dict.fromkeys(decided)}
    flags |= {"seq-length": tokens, "micro-batch-size": 1, MICRO_BATCHES: MOST_NUMBER}
    gpu = find_gpu(cluster.devices[0].kind) or "h100"
    return read_setup(Flags(flags), ParallelLayout(tensor=2, pipeline=2), gpu)


def _list_assumed(
    described: Described, cluster: Cluster, options: JointOptions, times: TimeAssumptions, given: set[str]
) -> Iterator[str]:
    """Yield what a plan takes that neither arguments nor files say; `given` has the names of arguments."""
    # The plan chooses the micro-batch; its caller always gives the global batch.
    flags = {**described.flags, "micro-batch-size": 1, "global-batch-size": options.global_batch}
    flags |= {"seq-length": options.seq_length} if "seq_length" in given else {}
    run = TrainingRun(name="", shape=described.shape, layout=ParallelLayout(), setup=options.make_setup())
    has_gpu = find_gpu(cluster.devices[0].kind) is not None
    yield from list_assumptions(run, Flags(flags), has_ranks=True, has_gpu=has_gpu)
    if "context" not in given:
        yield count(options.context, "context-parallel rank")
    if "memory_share" not in given:
        yield f"{format_share(options.memory_share)} of each device's memory"
    if "efficiency" not in given:
        yield f"matrix products at {format_share(times.product_efficiency)} of the peak"
    # A short form without a network has that of its devices' vendor.
    is_short = is_short_form(cluster.name) and ":" not in cluster.name
    if cluster.network is not None and cluster.network.kind is not None and is_short:
        yield f"{cluster.network.kind} between nodes"


def _settle(choices: PlanChoices) -> dict[str, object]:
    settled: dict[str, object] = dict(choices)
    for name in ("zero_stages", "recomputes"):
        if name in settled:
            settled[name] = tuple(choices[name])
    return settled
