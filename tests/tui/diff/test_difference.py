"""The screen of two runs: what it shows, its keys, a real terminal; look at its pictures when they change."""

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from vramscope.analyzers.diff import Comparison, compare_runs
from vramscope.engine.errors import InputFileError
from vramscope.tui.diff.screen import Compare, DifferenceScreen, view_difference
from vramscope.tui.screens.terminal_app import TerminalApp
from vramscope.tui.terminal.abilities import TerminalAbilities

from ...analyzers.diff.runs import Peak, summarize, train
from ...vramscope.cli.test_diff import write_series
from ...waiting import wait_until
from ..file_apps import first_screen, make_file_app, refusal_of
from ..inspect.test_inspect import until
from ..panes import PROGRAM, pane


def vary(seed: str, extra: Peak = lambda rank, step: 0.0) -> Peak:
    """Return the needs of a job with rows of many lengths."""

    def peak(rank: int, step: int) -> float:
        return 30 + 4 * random.Random(f"{seed} {rank} {step}").random() + extra(rank, step)

    return peak


def grow(rank: int, step: int) -> float:
    """Rank 1 leaks from step 200 on, and rank 3 needs more from step 312 on."""
    return 0.02 * max(0, step - 200) * (rank == 1) + 3 * (rank == 3 and step >= 312)


def compare_two(extra: Peak = grow, ranks: int = 8) -> Comparison:
    a = summarize(train(vary("a"), steps=range(1, 501), ranks=range(ranks)))
    b = summarize(train(vary("b", extra), steps=range(1, 461), ranks=range(ranks), step_s=1.2))
    return compare_runs(a, b, files=("yesterday.vscope", "today.vscope"), formats=("recording", "recording"))


def make_app(compare: Compare, folder: Path, abilities: TerminalAbilities | None = None) -> TerminalApp:
    return make_file_app(view_difference(compare), folder, abilities)


def shown(app: TerminalApp) -> str:
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


async def test_the_verdict_both_runs_and_every_rank_are_shown_and_driven_by_keys(tmp_path: Path) -> None:
    comparison = compare_two()
    app = make_app(lambda tell: comparison, tmp_path)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: first_screen(app, DifferenceScreen).comparison)
        await pilot.pause()
        text = shown(app)
        assert comparison.difference.verdict[:60] in text
        assert "rank 1: allocated" in text
        assert "they diverge at step 2" in text
        await pilot.press("j")
        await pilot.pause()
        assert "rank 3: allocated" in shown(app)
        assert "they diverge at step 31" in shown(app)
        await pilot.press("f", "f")
        await pilot.pause()
        assert "rank 3: reserved" in shown(app)
        await pilot.press("F", "F", "end")
        await pilot.pause()
        assert "8 of 8" in shown(app)
        await pilot.press("i")
        await pilot.pause()
        assert "A yesterday.vscope: recording, 8 ranks or devices" in shown(app)
        await pilot.press("escape", "E")
        await until(pilot, lambda: len(list(tmp_path.iterdir())) == 2)
    (report,) = tmp_path.glob("*.txt")
    assert comparison.difference.verdict[:60] in report.read_text()


async def test_each_press_of_f_shows_another_metric(tmp_path: Path) -> None:
    compared = compare_two(ranks=1)
    async with (app := make_app(lambda _: compared, tmp_path)).run_test(size=(120, 32)) as pilot:
        await until(pilot, lambda: first_screen(app, DifferenceScreen).comparison)
        await pilot.pause()

        def metric() -> str:
            return next(line for line in shown(app).splitlines() if "⠤⠤ A" in line).partition("⠤")[0]

        seen = [metric()]
        for _ in range(len(compared.difference.subjects[0].figures)):
            await pilot.press("f")
            seen.append(metric())
        assert len(set(seen[:-1])) == len(seen) - 1
        assert seen[-1] == seen[0]


async def test_in_80_columns_the_report_has_no_line_that_is_broken_in_two(tmp_path: Path) -> None:
    compared = compare_two(ranks=1)
    async with (app := make_app(lambda _: compared, tmp_path)).run_test(size=(80, 40)) as pilot:
        await until(pilot, lambda: first_screen(app, DifferenceScreen).comparison)
        await pilot.press("i")
        await pilot.pause()
        lines = [line.strip(" │") for line in shown(app).splitlines() if "│" in line]
        (heading,) = (line for line in lines if line.startswith("who "))
        assert heading.endswith("%")
        row = lines[lines.index(heading) + 1]
        assert row.startswith("rank 0")
        assert not lines[lines.index(heading) + 2].startswith(("+", "-", "0"))


async def test_how_far_the_reading_is_can_be_seen_and_left(tmp_path: Path) -> None:
    held = threading.Event()

    def read(tell: Callable[[float | None, int], object]) -> Comparison:
        tell(0.25, 1234)
        held.wait(60)
        raise AssertionError("nobody waits for it")

    app = make_app(read, tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "reading both runs, 25 %: 1,234 samples" in shown(app))
        await pilot.press("q")
        await until(pilot, lambda: not app.is_running)
    held.set()
    assert refusal_of(app) is None


async def test_a_file_that_cannot_be_read_ends_it_with_its_sentence(tmp_path: Path) -> None:
    def read(tell: object) -> Comparison:
        raise InputFileError("a.csv: no record in it")

    app = make_app(read, tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: not app.is_running)
    assert isinstance(refusal_of(app), InputFileError)


def test_in_a_real_terminal_it_can_be_made_small_and_says_more_than_the_limit(tmp_path: Path) -> None:
    a, b = write_series(tmp_path / "a.csv"), write_series(tmp_path / "b.csv", 3)
    with pane(f"{PROGRAM} diff {a} {b} --fail-on +1GiB") as opened:
        text = opened.wait_for(
            "They diverge at step 60: GPU 1's allocated peak is 3.0 GiB (30.0 %)", "q quit"
        )
        assert "Traceback" not in text
        opened.resize(40, 10)
        wait_until(lambda: "diverge at step 60: 3.0 GiB" in opened.look() and "▌ GPU 1" in opened.look())
        opened.press("q")
        opened.wait_for("exit code 3")


LOOKS = {
    "color": TerminalAbilities(),
    "mono": TerminalAbilities(color_depth="none"),
    "ascii": TerminalAbilities(is_ascii=True, color_depth="16"),
}


@pytest.mark.parametrize(
    ("look", "size"),
    [
        ("color", (80, 24)),
        ("color", (200, 50)),
        ("color", (40, 10)),
        ("mono", (80, 24)),
        ("ascii", (80, 24)),
    ],
    ids=["80x24", "200x50", "40x10", "mono", "ascii"],
)
def test_looks(look: str, size: tuple[int, int], tmp_path: Path, snap_compare: Callable[..., bool]) -> None:
    comparison = compare_two()
    app = make_app(lambda tell: comparison, tmp_path, LOOKS[look])

    async def wait(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: first_screen(app, DifferenceScreen).comparison)
        await pilot.pause()

    assert snap_compare(app, terminal_size=size, run_before=wait)
