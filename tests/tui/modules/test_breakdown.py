"""The Breakdown screen: blocks, points, kinds, two runs, and what it never guesses; look at its pictures."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from textual.pilot import Pilot

from tests.engine.probe.module_memory.profiles import write_profile
from tests.engine.replay.recordings import record
from tests.tui.replays import make_replay, press_until
from vramscope.analyzers.modules import BreakdownNode, find_node, make_point_tree
from vramscope.cli.frame.parse import parse
from vramscope.cli.live import read_by_words
from vramscope.cli.verbs.modules import read_profiled, run
from vramscope.engine.errors import InputFileError, UsageError
from vramscope.engine.model.sample import MEMORY_KINDS, KindBytes, LayoutEntry, MemoryMoment, ModuleMemory
from vramscope.engine.units import GIB, MIB
from vramscope.tui.live.screen import LiveScreen
from vramscope.tui.modules.live_screen import LiveBreakdownScreen
from vramscope.tui.modules.profiled import Profiled
from vramscope.tui.modules.screen import BreakdownScreen, view_breakdown
from vramscope.tui.screens.terminal_app import TerminalApp
from vramscope.tui.terminal.abilities import TerminalAbilities

from ..breakdown_cases import make_profile, make_runs
from ..canned import FakeFeed, make_app
from ..canned_ranks import make_job, with_ranks
from ..file_apps import first_screen, make_file_app
from ..inspect.test_inspect import until
from ..looks import notices, shown_text

SnapCompare = Callable[..., bool]


def make_breakdown_app(
    profiles: Sequence[Profiled], folder: Path | None = None, abilities: TerminalAbilities | None = None
) -> TerminalApp:
    return make_file_app(view_breakdown(lambda: profiles), folder, abilities)


def test_a_point_has_the_totals_of_then_and_modules_only_where_they_were_written_so() -> None:
    memory, unit = make_profile(), GIB // 8
    tree = make_point_tree(memory, MEMORY_KINDS, 1, "all kinds")
    assert tree is not None
    assert tree.measured_bytes == 22 * unit, "parameters, gradients and what is saved then"
    layer = find_node(tree, ("gradients", "layers", "0"))
    assert layer is not None, "written a step later with the same total"
    assert layer.measured_bytes == 3 * unit
    activations = find_node(tree, ("activations",))
    assert activations is not None
    assert (activations.measured_bytes, activations.children) == (2 * unit, ()), (
        "nobody knows whose they were"
    )
    whole = make_point_tree(memory, ("activation",), None, "")
    assert whole is not None
    assert whole.children, "modules of the largest moment"
    assert make_point_tree(memory, ("os_params",), 1, "") is None
    close = MemoryMoment(
        tag="",
        time_s=0.0,
        kinds={"grads": KindBytes(MIB // 2)},
        layouts={"grads": tuple(LayoutEntry(f"g.{at}", 30_000, None) for at in range(17))},
    )
    assert find_children(ModuleMemory(format="InternLM log", moments=(close,))), "its figures are rounded"
    assert not find_children(ModuleMemory(format="module memory", moments=(close,)))


def find_children(memory: ModuleMemory) -> tuple[BreakdownNode, ...]:
    tree = make_point_tree(memory, ("grads",), 0, "")
    return () if tree is None else tree.children


def check_export(made: Path) -> None:
    names = {"blocks.csv", "icicle.pdf", "icicle.svg", "modules.txt", "screen.svg"}
    names |= {"difference_icicle.svg", "difference_icicle.pdf", "differences.csv", "differences.txt"}
    assert {path.name for path in made.iterdir()} == names
    assert "all kinds/gradients/layers/1/mlp/weight,402653184" in (made / "blocks.csv").read_text()
    assert "simulated device" in (made / "difference_icicle.svg").read_text()
    told = (made / "differences.csv").read_text()
    assert "gradients/layers/1/mlp/weight,measured,268435456,402653184,134217728," in told


async def test_blocks_points_kinds_and_runs_are_driven_by_keys(tmp_path: Path) -> None:
    app = make_breakdown_app(make_runs(), tmp_path)
    async with app.run_test(size=(120, 32)) as pilot:
        await until(pilot, lambda: "Most:" in shown_text(app))

        async def press(*keys: str) -> str:
            await pilot.press(*keys)
            await pilot.pause()
            return shown_text(app)

        text = await press("home")
        assert "Most: optimizer state, 2.5 GiB of 5.5 GiB (45 %) measured, over the whole profile" in text
        assert "simulated device" in text
        assert "all kinds / parameters / embedding" in await press("down", "down")
        text = await press("right", "down", "enter")
        assert "/".join(first_screen(app, BreakdownScreen).icicle.zoom) == "parameters/layers/0"
        assert "measured 384 MiB, computed 384 MiB; 6.8 % of all kinds" in text
        await press("backspace")
        assert "/".join(first_screen(app, BreakdownScreen).icicle.zoom) == "parameters/layers"
        await press("escape")
        assert not first_screen(app, BreakdownScreen).icicle.zoom
        text = await press("f", "f", "f", "f")
        assert "▌activations 513 MiB" in text
        assert "activations: 513 MiB measured, 256 MiB computed: computed is the output of modules" in text
        assert "of 256 MiB (100 %) computed, over the whole profile" in await press("b")
        text = await press("b", "left_square_bracket", "left_square_bracket")
        assert "2 of 3: backward, 1.5 s" in text
        assert "256 MiB of activations measured at backward; no modules were recorded there" in text
        text = await press("tab", "f", "down")
        assert "run2 (2 of 2)" in text
        assert "+640 MiB (+50.0 %) vs run1: 1.2 GiB there" in text
        assert "all kinds / parameters" in text
        await press("E")
        await until(pilot, lambda: any("Wrote blocks.csv" in told for told in notices(app)))
        (made,) = tmp_path.iterdir()
        check_export(made)
        assert "optimizer state" in await press("i")


async def test_profiles_lie_over_the_live_view_and_over_a_replay(tmp_path: Path) -> None:
    write_profile(tmp_path / "memory_trace")
    app = make_app(FakeFeed(with_ranks(*make_job(2))))
    async with app.run_test(size=(150, 40)) as pilot:
        await pilot.press("7")
        assert isinstance(app.screen, LiveScreen), "nothing reads profiles"
        app.tools["modules"].read = read_by_words
        await pilot.press("7")
        assert isinstance(app.screen, LiveBreakdownScreen), "a job trains: its modules are what is meant"
        await pilot.press("o", *"/nowhere", "enter")
        await until(pilot, lambda: "cannot be" in shown_text(app) or "no such" in shown_text(app).lower())
        await pilot.press("ctrl+u", *str(tmp_path), "enter")
        await until(pilot, lambda: type(app.screen) is BreakdownScreen)
        await pilot.pause()
        assert "Most: activations, 6 KiB of 6 KiB (92 %) measured" in shown_text(app)
        await pilot.press("escape")
        assert isinstance(app.screen, LiveScreen)
    replay = make_replay(record(tmp_path / "run.vscope"))
    replay.tools["modules"].read = read_by_words
    async with replay.run_test(size=(120, 32)) as pilot:
        before = await press_until(pilot, ["space"], lambda it: it.is_paused)
        await pilot.press("7", "ctrl+u", *str(tmp_path), "enter")
        await until(pilot, lambda: isinstance(replay.screen, BreakdownScreen))
        await pilot.press("left_square_bracket")
        await pilot.pause()
        assert "2 of 2: step 1" in shown_text(replay), "the profile's points, not the replay's"
        await pilot.press("1")
        assert isinstance(replay.screen, LiveScreen)
        await press_until(pilot, ["right_square_bracket"], lambda it: it.position_s == before.position_s + 1)


def test_words_and_flags_that_cannot_be_used_are_refused_in_a_sentence(tmp_path: Path) -> None:
    path = write_profile(tmp_path)
    assert [each.name for each in read_profiled([path, tmp_path])] == [str(path), str(tmp_path)]
    with pytest.raises(UsageError, match="expected profiles by module"):
        read_by_words("a '")
    with pytest.raises(InputFileError):
        read_by_words(str(tmp_path / "none"))
    with pytest.raises(UsageError) as caught:
        run(parse(["modules", str(path), "--screen", "--json"]))
    assert caught.value.describe("flag").startswith("--json does not go with --screen")


LOOKS = {
    "80x24-ascii": ((80, 24), TerminalAbilities(is_ascii=True, color_depth="16"), ("down", "right")),
    "120x32": ((120, 32), TerminalAbilities(), ("tab", "down", "down")),
    "40x10-mono": ((40, 10), TerminalAbilities(color_depth="none"), ("down",)),
}


@pytest.mark.parametrize("look", LOOKS)
def test_pictures(look: str, snap_compare: SnapCompare) -> None:
    size, abilities, keys = LOOKS[look]

    async def prepare(pilot: Pilot[None]) -> None:
        app = pilot.app
        assert isinstance(app, TerminalApp)
        await until(pilot, lambda: first_screen(app, BreakdownScreen).profile is not None)
        await pilot.press(*keys)
        await pilot.pause()

    app = make_breakdown_app(make_runs(), abilities=abilities)
    assert snap_compare(app, terminal_size=size, run_before=prepare)
