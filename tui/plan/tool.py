"""The key that opens a plan over the view, with the measured needs of the running job on it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...engine.units import format_bytes
from ...engine.unmeasured import least_known
from ..controls.tools import PromptTool
from ..draw.numbers import count_text

if TYPE_CHECKING:
    from ...analyzers.stage_peaks import JobStages, StagePeaks
    from ...engine.model import Sample
    from ...engine.viewer.snapshot import Snapshot
    from ..app import VramscopeApp
    from .planned import JobDefaults, Planned


class PlanTool(PromptTool["Planned"]):
    """A plan of a model's stages, with the measured needs of the job drawn on it."""

    QUESTION = "Plan the stages of a model"
    EXAMPLE = "e.g. llama3-8b  or  ./config.json --stages 2-8 --micro-batches 16"
    text = ""

    def __init__(self, app: "VramscopeApp") -> None:
        super().__init__(app)
        self._peaks: StagePeaks | None = None
        self._observed_s = 0.0  # time of the newest sample of a replay

    def ask(self) -> None:
        read = self.read
        if read is not None:
            defaults = self._find_defaults()
            hint = f"a model's name or file, then flags of vramscope plan ({_describe(defaults)})"
            self._prompt(lambda words: read(words, defaults), hint)

    def open(self, found: "Planned") -> None:
        """Show a plan; from now on, the stages of all nodes are compared with it."""
        from .screen import PlanScreen

        app = self._app
        if app.fleet is not None:
            best = found.recommended
            peaks = [] if best is None else [stage.peak_bytes for stage in best.stages]
            known = [peak for peak in peaks if peak is not None]
            app.fleet.cluster.compare_with(known if len(known) == len(peaks) else ())
        screen = PlanScreen(leave=app.step_back)
        screen.show(found)
        screen.measure(self.measure_stages())
        app.show_over(screen)

    def forget(self) -> None:
        """Measure from now on: for another job, or from an earlier moment."""
        self._peaks = None

    def observe(self, snapshots: "Sequence[Snapshot]") -> None:
        """Update the needs of the ranks, and draw them where a plan is shown; across nodes the fleet
        does it.
        """
        if not self._is_across_nodes:
            for snapshot in snapshots:
                if snapshot.sample is not None:
                    self._observe_sample(snapshot.sample, is_replayed=snapshot.replay is not None)
        if self._app.overlay is not None:
            from .screen import PlanScreen

            if isinstance(self._app.overlay, PlanScreen):
                self._app.overlay.measure(self.measure_stages())

    def measure_stages(self) -> "JobStages":
        """Return the measured needs of the running job's stages, on all of its nodes."""
        app = self._app
        if app.fleet is None or not self._is_across_nodes:
            return self._seen.tell()
        measured = app.fleet.cluster.picture.measured
        if measured.since_s is None:
            return measured
        from msgspec.structs import replace

        ago_s = app.clock.monotonic_s() - measured.since_s
        return replace(measured, since_s=app.clock.wall_s() - ago_s)

    @property
    def _is_across_nodes(self) -> bool:
        return self._app.fleet is not None and self._app.known.are_several

    @property
    def _seen(self) -> "StagePeaks":
        from ...analyzers.stage_peaks import StagePeaks

        if self._peaks is None:
            self._peaks = StagePeaks()
        return self._peaks

    def _observe_sample(self, sample: "Sample", *, is_replayed: bool) -> None:
        if is_replayed:
            if sample.time_s < self._observed_s:
                self.forget()
            self._observed_s = sample.time_s
        self._seen.observe(sample)

    def _find_defaults(self) -> "JobDefaults":
        from .planned import JobDefaults

        sample = self._app.newest.sample
        totals = [it.memory.total_bytes for it in sample.devices if it.kind != "cpu"] if sample else []
        job = self.measure_stages()
        return JobDefaults(
            stages=job.pipeline or (job.stages[-1].stage + 1 if job.stages else None),
            capacity_bytes=least_known(totals),
        )


def _describe(defaults: "JobDefaults") -> str:
    """Return the defaults for missing flags, in words."""
    count = defaults.stages
    stages = "2-8 stages" if count is None else f"{count_text(count, 'stage', 'stages')}, as in the job"
    if defaults.capacity_bytes is None:
        return stages
    return f"{stages}, devices of {format_bytes(defaults.capacity_bytes)}"


TOOL = PlanTool
