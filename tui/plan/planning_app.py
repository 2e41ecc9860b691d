"""An application over whose screens a plan can lie, with what the job was measured to need drawn on it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from textual.binding import Binding

from ...analyzers.stage_peaks import JobStages, StagePeaks
from ...engine.clock import Clock
from ...engine.model import Sample
from ...engine.units import format_bytes
from ...engine.viewer.snapshot import Snapshot
from ..draw.numbers import count_text
from ..screens.overlay_app import OverlayApp

if TYPE_CHECKING:
    from ..screens.path_prompt import Answer
    from .planned import Planned

QUESTION = "Plan the stages of a model"
EXAMPLE = "such as: llama3-8b  or  ./config.json --stages 2-8 --micro-batches 16"


class JobDefaults(NamedTuple):
    """What a plan takes from the job that runs, where nothing else is said."""

    stages: int | None = None
    """None where no job tells how many it has."""
    capacity_bytes: int | None = None
    """Of the smallest device; None where none is known."""


PlanModel = Callable[[str, JobDefaults], "Planned"]
"""Makes the plan that words ask for: a model, then flags of `vramscope plan`. Raises a `VramscopeError`."""


class PlanningApp(OverlayApp, inherit_bindings=False):
    """Knows what the stages of running jobs needed at most, and asks for a model to plan."""

    plan_model: PlanModel | None = None
    """Makes plans; None where none can be made, and then no key is offered."""
    _planned_text = ""
    _newest: Snapshot
    _clock: Clock
    _export_folder: Path | None

    _peaks: StagePeaks | None = None
    _observed_s = 0.0
    """Time of the newest sample of a replay."""

    @property
    def stage_peaks(self) -> StagePeaks:
        """What the stages of jobs were seen to need."""
        if self._peaks is None:
            self._peaks = StagePeaks()
        return self._peaks

    def forget_stages(self) -> None:
        """Begin anew: another job is shown, or an earlier moment."""
        self._peaks = None

    def observe_stages(self, snapshots: Sequence[Snapshot]) -> None:
        """Take what the ranks of snapshots needed, and draw it where a plan is shown."""
        for snapshot in snapshots:
            if snapshot.sample is not None:
                self._observe_stages_of(snapshot.sample, is_replayed=snapshot.replay is not None)
        self.show_stages()

    def tell_stages(self) -> JobStages:
        """Return what the stages of the job that runs were seen to need."""
        return self.stage_peaks.tell()

    def show_stages(self) -> None:
        """Draw what stages were seen to need where a plan is shown."""
        if self.overlay is not None:
            from .screen import PlanScreen

            if isinstance(self.overlay, PlanScreen):
                self.overlay.measure(self.tell_stages())

    def _observe_stages_of(self, sample: Sample, *, is_replayed: bool) -> None:
        if is_replayed:
            if sample.time_s < self._observed_s:
                self.forget_stages()
            self._observed_s = sample.time_s
        self.stage_peaks.observe(sample)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether an action makes sense now: where nothing makes plans, none is offered."""
        if action == "show_plan" and self.plan_model is None:
            return False
        return super().check_action(action, parameters)

    def offers(self, binding: Binding) -> bool:
        """Return whether help and palette tell of a key."""
        return super().offers(binding) and (binding.action != "show_plan" or self.plan_model is not None)

    def action_show_plan(self) -> None:
        """Ask for a model, and show its plan over the present screen."""
        make = self.plan_model
        if make is None:
            return
        from ..screens.path_prompt import PathPrompt

        defaults = self._find_defaults()
        hint = f"a model's name or file, then flags of vramscope plan ({_describe(defaults)})"
        prompt = PathPrompt(
            QUESTION, lambda text: make(text, defaults), text=self._planned_text, example=EXAMPLE, hint=hint
        )
        self.push_screen(prompt, self._show_plan)

    def _show_plan(self, answer: "Answer[Planned] | None") -> None:
        if answer is None:
            return
        from .screen import PlanScreen

        self._planned_text = answer.text
        self.note_plan(answer.found)
        screen = PlanScreen(self.glyphs, self._clock, export_folder=self._export_folder, leave=self.step_back)
        screen.show(answer.found)
        screen.measure(self.tell_stages())
        self.show_over(screen)

    def note_plan(self, planned: "Planned") -> None:
        """Take note of a plan that is shown; here nothing else is held against it."""

    def _find_defaults(self) -> JobDefaults:
        sample = self._newest.sample
        totals = [it.memory.total_bytes for it in sample.devices if it.kind != "cpu"] if sample else []
        job = self.tell_stages()
        return JobDefaults(
            stages=job.pipeline or (job.stages[-1].stage + 1 if job.stages else None),
            capacity_bytes=min((total for total in totals if total is not None), default=None),
        )


def _describe(defaults: JobDefaults) -> str:
    """Return what is taken where no flag says otherwise."""
    count = defaults.stages
    stages = "2-8 stages" if count is None else f"{count_text(count, 'stage', 'stages')}, as the job has"
    if defaults.capacity_bytes is None:
        return stages
    return f"{stages}, devices of {format_bytes(defaults.capacity_bytes)}"
