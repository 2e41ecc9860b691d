"""What a time model learns from measured runs of the user, or from a profile of Galvatron."""

from pathlib import Path

import msgspec

from vramscope.analyzers.planning.cluster import Cluster
from vramscope.analyzers.planning.joint import JointOptions
from vramscope.analyzers.planning.theory import ModelShape, ParallelLayout, TrainingSetup, check_all
from vramscope.analyzers.planning.theory.presets import PRESETS
from vramscope.analyzers.planning.theory.shape import Recompute
from vramscope.analyzers.planning.time import (
    TimeAssumptions,
    TimedRun,
    describe_speed,
    fit_layer_profile,
    fit_runs,
)
from vramscope.engine.errors import InputFileError, UsageError
from vramscope.engine.files.base.input_file import show_path
from vramscope.engine.files.case_table import read_case_table
from vramscope.engine.files.galvatron import read_layer_profile

TIME_COLUMN = "iteration_ms"
RECOMPUTES: dict[str, Recompute] = {"none": "none", "selective": "selective", "full": "full"}
MOST_NUMBER = 10**9


def learn_times(path: Path, shape: ModelShape, cluster: Cluster, options: JointOptions) -> TimeAssumptions:
    """Return the assumptions that a file of measured times leads to.

    Args:
        path: CSV with `tp`, `pp`, `mbs` and `iteration_ms`, and where they differ from what is planned
            `dp`, `gbs`, `seq`, `zero`, `recompute`, `seq_parallel`, `pieces`; or JSON: a computation
            profile of Galvatron, taken on devices as those of the cluster.
        shape: The model that ran; of a profile, where its file's name is of no known model.
        cluster: Where it ran.
        options: The batch and sequence that are planned.

    Raises:
        InputFileError: The file cannot be read or understood.
        UsageError: A row describes no run that can be.
    """
    if path.suffix == ".json":
        return _learn_from_profile(path, shape, cluster)
    table = read_case_table(path)
    shown = show_path(path)
    missing = [name for name in ("tp", "pp", "mbs", TIME_COLUMN) if name not in table.columns]
    if missing:
        raise InputFileError(
            f"{shown}: line 1: no column {', '.join(missing)}; expected tp, pp, mbs, {TIME_COLUMN}"
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
    """One row of the table, and where it stands."""

    def __init__(self, where: str, cells: dict[str, str]) -> None:
        self._where = where
        self._cells = cells

    def count(self, name: str, default: int) -> int:
        """Return a whole number; the default where there is none."""
        text = self._cells.get(name, "").strip()
        if not text:
            return default
        if not text.isdecimal() or not int(text) <= MOST_NUMBER:
            raise self.refuse(name, text, "a whole number")
        return int(text)

    def read_seconds(self) -> float:
        """Return the measured time."""
        text = self._cells.get(TIME_COLUMN, "").strip()
        try:
            milliseconds = float(text)
        except ValueError:
            milliseconds = 0.0
        if not 0 < milliseconds < MOST_NUMBER:
            raise self.refuse(TIME_COLUMN, text, "milliseconds above 0")
        return milliseconds / 1000

    def read_recompute(self, default: Recompute) -> Recompute:
        """Return what is recomputed."""
        text = self._cells.get("recompute", "").strip()
        if text and text not in RECOMPUTES:
            raise self.refuse("recompute", text, "none, selective or full")
        return RECOMPUTES.get(text, default)

    def is_set(self, name: str) -> bool:
        """Return whether a cell says yes."""
        return self._cells.get(name, "").strip().lower() in ("1", "true", "yes")

    def refuse(self, name: str, text: str, expected: str) -> InputFileError:
        """Return the error of a cell."""
        return InputFileError(f"{self._where}, {name}: {text[:40]!r}; expected {expected}")

    def refuse_all(self, error: UsageError) -> InputFileError:
        """Return the error of a row."""
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
    setup = TrainingSetup(
        seq_length=row.count("seq", options.seq_length),
        micro_batch_size=size,
        micro_batches=row.count("gbs", options.global_batch) // max(1, data * size),
        numbers=options.numbers,
        zero_stage=row.count("zero", 1),
        attention=options.attention,
        recompute=row.read_recompute("none"),
    )
    try:
        check_all(shape, _spread(layout, shape), setup)
        if layout.world_size > len(cluster.devices):
            raise UsageError(f"{layout.world_size} ranks on {len(cluster.devices)} devices; expected no more")
    except UsageError as error:
        raise row.refuse_all(error) from error
    return TimedRun(shape=shape, layout=_spread(layout, shape), setup=setup, step_s=row.read_seconds())


def _spread(layout: ParallelLayout, shape: ModelShape) -> ParallelLayout:
    """Return a layout whose stages are as even as they can be where PP does not divide the layers."""
    stages = layout.pipeline
    if stages < 1 or layout.virtual_stages > 1 or shape.layers % stages == 0 or stages > shape.layers:
        return layout
    share, rest = divmod(shape.layers, stages)
    sizes = tuple(share + (stage >= stages - rest) for stage in range(stages))
    return msgspec.structs.replace(layout, stage_layers=sizes)
