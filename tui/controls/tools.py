"""Tools over a view: a prompt asks for words, a thread reads what they name, and a screen shows it."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from ...engine.units import format_bytes
from ..draw.numbers import count_text

if TYPE_CHECKING:
    from textual.screen import Screen

    from ...analyzers.planning.sweep.index import SweepIndex
    from ...analyzers.stage_peaks import JobStages, StagePeaks
    from ...engine.model import RankSample, Sample
    from ...engine.viewer.snapshot import Snapshot
    from ..app import VramscopeApp
    from ..modules.live_screen import LiveBreakdownScreen
    from ..modules.profiled import Profiled
    from ..plan.planned import JobDefaults, Planned
    from ..screens.dialogs import Answer
    from ..sweep.screen import ReplayAsked

FoundT = TypeVar("FoundT")
# Makes a plan from words: a model, then flags of `vramscope plan`. Raises a `VramscopeError`.
PlanModel = Callable[[str, "JobDefaults"], "Planned"]
# A sentence with a path in it takes longer to read.
NOTE_S = 10.0


class Tool(Generic[FoundT]):
    """One tool; without `read` its key is not offered."""

    QUESTION = ""
    EXAMPLE = ""
    HINT = ""
    # Reads what the words name. Raises a `VramscopeError`.
    read: Callable[[str], FoundT] | None = None
    # The last input.
    text = "."

    def __init__(self, app: "VramscopeApp") -> None:
        self._app = app

    @property
    def is_offered(self) -> bool:
        return self.read is not None

    def ask(self) -> None:
        if self.read is not None:
            self._prompt(self.read, self.HINT)

    def _prompt(self, read: Callable[[str], FoundT], hint: str) -> None:
        from ..screens.dialogs import PathPrompt

        prompt = PathPrompt(self.QUESTION, read, text=self.text, example=self.EXAMPLE, hint=hint)
        self._app.push_screen(prompt, self._open_answer)

    def _open_answer(self, answer: "Answer[FoundT] | None") -> None:
        if answer is not None:
            self.text = answer.text
            self.open(answer.found)

    def open(self, found: FoundT) -> None:
        raise NotImplementedError


class SweepTool(Tool["SweepIndex"]):
    """Sweeps in folders."""

    QUESTION = "Sweeps over TP and PP"
    EXAMPLE = "e.g. memory_traces_scaling log"
    HINT = "folders with traces or logs, at any depth; then flags of vramscope sweep"

    def open(self, found: "SweepIndex") -> None:
        from ..sweep.index_screen import SweepIndexScreen

        app = self._app
        screen = SweepIndexScreen(replay=self._explain_replay, leave=app.step_back)
        app.show_over(screen)
        screen.show(found)

    def _explain_replay(self, asked: "ReplayAsked") -> None:
        """Notify how to replay a layout elsewhere: this view does not change."""
        from ...engine.files.base.input_file import show_path

        path = asked.cells[asked.at].path
        if path is not None:
            told = f"Replay it in another shell: vramscope replay {show_path(path)}"
            self._app.notify(told, timeout=NOTE_S)


class PlanTool(Tool["Planned"]):
    """A plan of a model's stages, with the measured needs of the job drawn on it."""

    QUESTION = "Plan the stages of a model"
    EXAMPLE = "e.g. llama3-8b  or  ./config.json --stages 2-8 --micro-batches 16"
    make: PlanModel | None = None
    text = ""

    def __init__(self, app: "VramscopeApp") -> None:
        super().__init__(app)
        self._peaks: StagePeaks | None = None
        self._observed_s = 0.0  # time of the newest sample of a replay

    @property
    def is_offered(self) -> bool:
        return self.make is not None

    def ask(self) -> None:
        make = self.make
        if make is not None:
            defaults = self._find_defaults()
            hint = f"a model's name or file, then flags of vramscope plan ({_describe(defaults)})"
            self._prompt(lambda text: make(text, defaults), hint)

    def open(self, found: "Planned") -> None:
        """Show a plan; from now on, the stages of all nodes are compared with it."""
        from ..plan.screen import PlanScreen

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

    def forget_stages(self) -> None:
        """Begin again: for another job, or an earlier moment."""
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
            from ..plan.screen import PlanScreen

            if isinstance(self._app.overlay, PlanScreen):
                self._app.overlay.measure(self.measure_stages())

    def measure_stages(self) -> "JobStages":
        """Return the measured needs of the running job's stages, on all of its nodes."""
        app = self._app
        if app.fleet is None or not self._is_across_nodes:
            return self._seen.tell()
        told = app.fleet.cluster.picture.measured
        if told.since_s is None:
            return told
        from msgspec.structs import replace

        ago_s = app.clock.monotonic_s() - told.since_s
        return replace(told, since_s=app.clock.wall_s() - ago_s)

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
                self.forget_stages()
            self._observed_s = sample.time_s
        self._seen.observe(sample)

    def _find_defaults(self) -> "JobDefaults":
        from ..plan.planned import JobDefaults

        sample = self._app.newest.sample
        totals = [it.memory.total_bytes for it in sample.devices if it.kind != "cpu"] if sample else []
        job = self.measure_stages()
        return JobDefaults(
            stages=job.pipeline or (job.stages[-1].stage + 1 if job.stages else None),
            capacity_bytes=min((total for total in totals if total is not None), default=None),
        )


def _describe(defaults: "JobDefaults") -> str:
    """Return the defaults for missing flags, in words."""
    count = defaults.stages
    stages = "2-8 stages" if count is None else f"{count_text(count, 'stage', 'stages')}, as in the job"
    if defaults.capacity_bytes is None:
        return stages
    return f"{stages}, devices of {format_bytes(defaults.capacity_bytes)}"


class BreakdownTool(Tool["Sequence[Profiled]"]):
    """Memory by module: of training processes, or of files."""

    QUESTION = "Memory by module"
    EXAMPLE = "e.g. memory_trace  or  run7/rank0_dp0_tp0/memory.log"
    HINT = "profile files, or folders with one per rank; several are compared"

    def __init__(self, app: "VramscopeApp") -> None:
        super().__init__(app)
        self._screen: Screen[None] | None = None
        self._followed: LiveBreakdownScreen | None = None

    @property
    def is_seen(self) -> bool:
        """Whether profiles lie over the screens of the application: `[` and `]` then move in them."""
        return self._screen is not None and self._app.overlay is self._screen

    def show(self) -> None:
        """Follow the modules of the current process; where none trains, ask for files."""
        ranks = () if self.is_seen else self._list_running()
        if not ranks:
            self.ask()
            return
        from ..modules.live_screen import LiveBreakdownScreen, LiveProfiles

        app = self._app
        live = LiveProfiles(app.feed, app.clock, ranks)
        self._screen = self._followed = LiveBreakdownScreen(live, leave=app.step_back)
        app.show_over(self._screen)

    def open(self, found: "Sequence[Profiled]") -> None:
        from ..modules.screen import BreakdownScreen

        screen = self._screen = BreakdownScreen(leave=self._app.step_back)
        screen.show(found)
        self._app.show_over(screen)

    def follow(self, snapshot: "Snapshot") -> None:
        """Show the data of a snapshot about the followed processes."""
        is_shown = snapshot.node in ("", self._app.known.shown)
        if is_shown and self._followed is not None and self._app.overlay is self._followed:
            self._followed.follow(snapshot)

    def _list_running(self) -> "Sequence[RankSample]":
        """Return the processes that can be asked for their modules, the current one first."""
        from ..widgets.device_view import order_of

        app = self._app
        sample = app.shown.sample
        uuid, pid = app.looked_at
        if sample is None or app.signal_policy.is_replay:
            return ()
        running = [rank for rank in sample.ranks if rank.state == "ok"]
        return sorted(running, key=lambda it: (it.pid != pid, it.device_uuid != uuid, order_of(it)))
