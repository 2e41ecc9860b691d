"""The Plan screen: what it shows of a plan, its keys and its pictures; look at those when they change."""

import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from vramscope.analyzers.planning.partition import Device
from vramscope.analyzers.stage_peaks import JobStages, StagePeak
from vramscope.cli.frame.parse import parse
from vramscope.cli.plan import Request
from vramscope.cli.plan_screen import present_stages, present_words
from vramscope.cli.verbs.plan import run
from vramscope.engine.errors import UsageError
from vramscope.engine.units import GIB
from vramscope.tui.plan.planned import JobDefaults, Planned
from vramscope.tui.plan.screen import PlanScreen, view_plan
from vramscope.tui.screens.terminal_app import TerminalApp
from vramscope.tui.terminal.abilities import TerminalAbilities

from ..file_apps import first_screen, make_file_app, refusal_of
from ..inspect.test_inspect import until

SnapCompare = Callable[..., bool]
JOB = JobStages(
    stages=tuple(
        StagePeak(stage=stage, ranks=1, allocated_bytes=int(size * GIB), reserved_bytes=10 * GIB)
        for stage, size in enumerate((9.9, 8.5, 8.0, 7.5))
    ),
    pipeline=4,
)
"""A job of four stages, the first of which needs more than was planned."""


@pytest.fixture(scope="module")
def planned() -> Planned:
    return present_stages(
        Request(
            model="gpt-1.5b",
            stages=(2, 4),
            strategies=("exact", "exact-1f1b", "uniform"),
            metric="memory",
            seq_length=None,
            micro_batch=1,
            micro_batches=8,
            states="mixed-adam",
            device=Device(capacity_bytes=11 * GIB),
            is_legacy=False,
        )
    )


def make_plan_app(
    make: Callable[[], Planned], folder: Path | None = None, abilities: TerminalAbilities | None = None
) -> TerminalApp:
    return make_file_app(view_plan(make, model="gpt-1.5b"), folder, abilities)


def shown(app: TerminalApp) -> str:
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


Press = Callable[..., Awaitable[str]]


@asynccontextmanager
async def opened(app: TerminalApp, size: tuple[int, int] = (120, 32)) -> AsyncIterator[Press]:
    """Give what presses keys and returns what is then on the screen."""
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: first_screen(app, PlanScreen).candidate)

        async def press(*keys: str) -> str:
            await pilot.press(*keys)
            await pilot.pause()
            return shown(app)

        yield press


async def test_the_plan_its_stages_and_their_layers_are_driven_by_keys(planned: Planned) -> None:
    async with opened(make_plan_app(lambda: planned)) as press:
        text = await press()
        assert "Use 4 stages, exact: least device time of a step" in text
        assert "4 of 6" in text, "the cursor begins at what is recommended"
        assert "most memory: word_embeddings (4.9 %)" in text
        assert "9.3 GiB" in text
        text = await press("home")
        assert "2 stages, exact vs the recommended plan: fullest stage +6.9 GiB (+74.2 %)" in text
        assert "5.2 GiB over" in text, "a stage that does not fit says by how much, in words"
        text = await press("c", "end")
        assert "4 stages, uniform vs 2 stages, exact (c): fullest stage -6.2 GiB (-38.1 %)" in text
        text = await press("c", "c", "enter", "j", "enter")
        assert "stage 1: its layers" in text
        assert "transformer_block_12 transformer block" in text
        text = await press("escape", "escape", "a")
        assert "how parameters, float32 weights and forward compute are spread" in text
        assert "4 of 6" not in await press("escape", "home")


async def test_plans_are_filtered_sorted_read_and_exported(planned: Planned, tmp_path: Path) -> None:
    app = make_plan_app(lambda: planned, tmp_path)
    async with opened(app) as press:
        assert "1 of 2, 4 filtered out" in await press("slash", *"1f1b", "enter")
        text = await press("slash", "escape", "greater_than_sign", "greater_than_sign", "I", "home")
        assert "by strategy, reversed · 1 of 6" in text
        candidate = first_screen(app, PlanScreen).candidate
        assert candidate is not None
        assert candidate.name == "2 stages, uniform"
        assert "Recommended: 4 stages, exact" in await press("i")
        await press("escape", "E")
    (folder,) = tmp_path.iterdir()
    assert {
        "gpt_1.5b_model_graph.json",
        "best_partition_strategy.json",
        "pipeline_parallel_config.json",
        "pipeline_strategy_report.txt",
        "plan.svg",
        "plan.txt",
    } <= {path.name for path in folder.iterdir()}


async def test_what_a_job_needs_is_drawn_beside_a_plan_of_as_many_stages(planned: Planned) -> None:
    app = make_plan_app(lambda: planned)
    async with opened(app, (160, 32)) as press:
        first_screen(app, PlanScreen).measure(JOB)
        text = await press()
        assert "measured 9.9 GiB, +612 MiB (+6.4 %), reserved 10.0 GiB" in text
        assert "4 of 4 stages measured" in text
        assert "▼" in text
        text = await press("home")
        assert "the running job has 4 stages: select a plan with as many" in text
        assert "▼" not in text


async def test_a_plan_that_takes_long_can_be_left_and_one_that_cannot_be_says_why() -> None:
    held = threading.Event()

    def wait() -> Planned:
        held.wait(60)
        raise AssertionError("nobody waits for it")

    app = make_plan_app(wait)
    async with app.run_test(size=(40, 10)) as pilot:
        await until(pilot, lambda: "planning gpt-1.5b: 0 s; q leaves" in shown(app))
        await pilot.press("q")
        await until(pilot, lambda: not app.is_running)
    held.set()
    assert refusal_of(app) is None

    def refuse() -> Planned:
        raise UsageError("no number of stages fits")

    app = make_plan_app(refuse)
    async with app.run_test(size=(40, 10)) as pilot:
        await until(pilot, lambda: not app.is_running)
    assert str(refusal_of(app)) == "no number of stages fits"


LOOKS = {
    "80x24-ascii": ((80, 24), TerminalAbilities(is_ascii=True, color_depth="16"), ("home",)),
    "120x32": ((120, 32), TerminalAbilities(), ()),
    "200x50-compared": ((200, 50), TerminalAbilities(), ("c", "end")),
    "40x10-mono": ((40, 10), TerminalAbilities(color_depth="none"), ()),
}


@pytest.mark.parametrize("look", LOOKS)
def test_pictures(look: str, planned: Planned, snap_compare: SnapCompare) -> None:
    size, abilities, keys = LOOKS[look]

    async def prepare(pilot: Pilot[None]) -> None:
        app = pilot.app
        assert isinstance(app, TerminalApp)
        await until(pilot, lambda: first_screen(app, PlanScreen).candidate)
        first_screen(app, PlanScreen).measure(JOB)
        await pilot.press(*keys)
        app.clear_notifications()
        await pilot.pause()

    app = make_plan_app(lambda: planned, abilities=abilities)
    assert snap_compare(app, terminal_size=size, run_before=prepare)


async def test_configurations_of_a_cluster_show_a_rank_of_each_stage_and_where_a_step_s_time_goes() -> None:
    words = "gpt-0.3b --cluster 1x4xh100 --global-batch 8 --top 4 --screen"
    plan = present_words(words, JobDefaults())
    assert plan.verdict.fit(300).startswith("Use TP ")
    for candidate in plan.candidates:
        for stage in candidate.stages:
            assert sum(kind.size_bytes for kind in stage.kinds) == stage.peak_bytes
    async with opened(make_plan_app(lambda: plan)) as press:
        text = await press()
        assert "gpt-0.3b on 1x4xh100: 4 devices" in text
        assert "█ compute" in text
        assert "configurations considered · estimated, not measured" in text
        text = await press("enter", "enter")
        assert "master weights" in text
        assert "one rank at its peak" in text
        text = await press("escape", "escape", "a")
        assert "why they were left out" in text


def test_strategies_that_fit_nowhere_are_listed_with_what_they_need() -> None:
    plan = present_words("gpt-1.5b 4 --capacity 9GiB", JobDefaults())
    notes = {candidate.name: candidate.note for candidate in plan.candidates}
    assert notes["4 stages, exact"] == "best", "what training holds is the usual metric"
    assert notes["4 stages, uniform"] == "over"
    assert all("% left" in plan.verdict.fit(width) for width in (300, 78)), "a thin margin is named"
    plan = present_words("gpt-1.5b 4 --capacity 9GiB --metric memory", JobDefaults())
    notes = {candidate.name: candidate.note for candidate in plan.candidates}
    assert notes["4 stages, exact-1f1b"] == "best"
    assert notes["4 stages, exact"] == notes["4 stages, uniform"] == "over"


@pytest.mark.parametrize(
    "flags", [["--json"], ["--table"], ["-o", "out"], ["--measured", "run.vscope"], ["--zero", "1"]]
)
def test_a_screen_does_not_go_with_what_prints_or_writes(flags: list[str]) -> None:
    with pytest.raises(UsageError):
        run(parse(["plan", "--model", "gpt-1.5b", "--screen", *flags]))
