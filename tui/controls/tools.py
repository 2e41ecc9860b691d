"""What lies over a view for a while: it is asked for by a line of words, read on a thread, and shown."""

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
# Makes the plan that words ask for: a model, then flags of `vramscope plan`. Raises a `VramscopeError`.
PlanModel = Callable[[str, "JobDefaults"], "Planned"]
# A sentence with a path in it takes longer to read.
NOTE_S = 10.0


class Tool(Generic[FoundT]):
    """One of them; where nothing reads it, its key is not offered."""

    QUESTION = ""
    EXAMPLE = ""
    HINT = ""
    # Reads what words ask for. Raises a `VramscopeError`.
    read: Callable[[str], FoundT] | None = None
    # What was entered last.
    text = "."

    def __init__(self, app: "VramscopeApp") -> None:
        self._app = app

    @property
    def is_offered(self) -> bool:
        """Whether there is something that reads it."""
        return self.read is not None

    def ask(self) -> None:
        """Ask for the words, and show what was read over the present screen."""
        if self.read is not None:
            self._prompt(self.read, self.HINT)

    def _prompt(self, read: Callable[[str], FoundT], hint: str) -> None:
        from ..screens.dialogs import PathPrompt

        prompt = PathPrompt(self.QUESTION, read, text=self.text, example=self.EXAMPLE, hint=hint)
        self._app.push_screen(prompt, self._take)

    def _take(self, answer: "Answer[FoundT] | None") -> None:
        if answer is not None:
            self.text = answer.text
            self.open(answer.found)

    def open(self, found: FoundT) -> None:
        """Show what was read."""
        raise NotImplementedError


class SweepTool(Tool["SweepIndex"]):
    """Sweeps in folders."""

    QUESTION = "Sweeps over TP and PP"
    EXAMPLE = "such as: memory_traces_scaling log"
    HINT = "folders of traces, of logs, or trees of both, and flags of vramscope sweep"

    def open(self, found: "SweepIndex") -> None:
        """Show the list of sweeps, and over it the only one."""
        from ..sweep.index_screen import SweepIndexScreen

        app = self._app
        screen = SweepIndexScreen(replay=self._say_how_to_replay, leave=app.step_back)
        app.show_over(screen)
        screen.show(found)

    def _say_how_to_replay(self, asked: "ReplayAsked") -> None:
        """This view shows something else, which goes on."""
        from ...engine.files.base.input_file import show_path

        path = asked.cells[asked.at].path
        if path is not None:
            told = f"This view stays with what it shows. In a shell: vramscope replay {show_path(path)}"
            self._app.notify(told, timeout=NOTE_S, markup=False)


class PlanTool(Tool["Planned"]):
    """A plan of a model's stages, with what the job was measured to need drawn on it."""

    QUESTION = "Plan the stages of a model"
    EXAMPLE = "such as: llama3-8b  or  ./config.json --stages 2-8 --micro-batches 16"
    make: PlanModel | None = None
    text = ""

    def __init__(self, app: "VramscopeApp") -> None:
        super().__init__(app)
        self._peaks: StagePeaks | None = None
        self._observed_s = 0.0  # time of the newest sample of a replay

    @property
    def is_offered(self) -> bool:
        """Whether there is something that makes plans."""
        return self.make is not None

    def ask(self) -> None:
        """Ask for a model, and show its plan over the present screen."""
        make = self.make
        if make is not None:
            defaults = self._find_defaults()
            hint = f"a model's name or file, then flags of vramscope plan ({_describe(defaults)})"
            self._prompt(lambda text: make(text, defaults), hint)

    def open(self, found: "Planned") -> None:
        """Show a plan; what stages need over all nodes is compared with it from now on."""
        from ..plan.screen import PlanScreen

        app = self._app
        if app.fleet is not None:
            best = found.recommended
            peaks = [] if best is None else [stage.peak_bytes for stage in best.stages]
            known = [peak for peak in peaks if peak is not None]
            app.fleet.cluster.hold_against(known if len(known) == len(peaks) else ())
        screen = PlanScreen(leave=app.step_back)
        screen.show(found)
        screen.measure(self.tell_stages())
        app.show_over(screen)

    def forget_stages(self) -> None:
        """Begin again: another job is shown, or an earlier moment."""
        self._peaks = None

    def observe(self, snapshots: "Sequence[Snapshot]") -> None:
        """Take what ranks needed, and draw it where a plan is shown; across nodes it is known already."""
        if not self._is_across_nodes:
            for snapshot in snapshots:
                if snapshot.sample is not None:
                    self._observe_sample(snapshot.sample, is_replayed=snapshot.replay is not None)
        if self._app.overlay is not None:
            from ..plan.screen import PlanScreen

            if isinstance(self._app.overlay, PlanScreen):
                self._app.overlay.measure(self.tell_stages())

    def tell_stages(self) -> "JobStages":
        """Return what the stages of the job that runs were seen to need, on all of its nodes."""
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
        job = self.tell_stages()
        return JobDefaults(
            stages=job.pipeline or (job.stages[-1].stage + 1 if job.stages else None),
            capacity_bytes=min((total for total in totals if total is not None), default=None),
        )


def _describe(defaults: "JobDefaults") -> str:
    """Return what is taken where no flag says otherwise."""
    count = defaults.stages
    stages = "2-8 stages" if count is None else f"{count_text(count, 'stage', 'stages')}, as the job has"
    if defaults.capacity_bytes is None:
        return stages
    return f"{stages}, devices of {format_bytes(defaults.capacity_bytes)}"


class BreakdownTool(Tool["Sequence[Profiled]"]):
    """Memory by module: of processes that train, or of files."""

    QUESTION = "Memory by module"
    EXAMPLE = "such as: memory_trace  or  run7/rank0_dp0_tp0/memory.log"
    HINT = "files of profiles, or folders with those of ranks; several are compared"

    def __init__(self, app: "VramscopeApp") -> None:
        super().__init__(app)
        self._screen: Screen[None] | None = None
        self._followed: LiveBreakdownScreen | None = None

    @property
    def is_seen(self) -> bool:
        """Whether profiles lie over the screens of the application: `[` and `]` then move in them."""
        return self._screen is not None and self._app.overlay is self._screen

    def show(self) -> None:
        """Follow the modules of the process that is looked at; where none trains, ask for files."""
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
        """Show profiles of files."""
        from ..modules.screen import BreakdownScreen

        screen = self._screen = BreakdownScreen(leave=self._app.step_back)
        screen.show(found)
        self._app.show_over(screen)

    def follow(self, snapshot: "Snapshot") -> None:
        """Show what a snapshot tells of the processes that are followed."""
        is_shown = snapshot.node in ("", self._app.known.shown)
        if is_shown and self._followed is not None and self._app.overlay is self._followed:
            self._followed.follow(snapshot)

    def _list_running(self) -> "Sequence[RankSample]":
        """Return the processes that can be asked for their modules, those that are looked at first."""
        from ..widgets.device_view import order_of

        app = self._app
        sample = app.shown.sample
        uuid, pid = app.looked_at
        if sample is None or app.signal_policy.is_replay:
            return ()
        running = [rank for rank in sample.ranks if rank.state == "ok"]
        return sorted(running, key=lambda it: (it.pid != pid, it.device_uuid != uuid, order_of(it)))
