"""On a terminal without Unicode everything that is drawn is ASCII."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tests.tui.canned import (
    FakeFeed,
    make_app,
    make_device,
    make_finding,
    make_process,
    make_sample,
    make_snapshot,
)
from vramscope.tui.app import VramscopeApp
from vramscope.tui.draw.spans import to_ascii
from vramscope.tui.terminal.abilities import TerminalAbilities

ASCII_TERMINAL = TerminalAbilities(is_ascii=True, color_depth="16", reason="TERM=linux")


@given(st.text(st.characters(exclude_categories=("Cc", "Cs", "Mn", "Me", "Cf"))))
def test_the_likeness_takes_the_same_cells(text: str) -> None:
    assert to_ascii(text).isascii()
    assert cell_len(to_ascii(text)) == cell_len(text)


def _text_of(app: VramscopeApp) -> str:
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (40, 10)])
@pytest.mark.parametrize(
    "keys", [[], ["question_mark"], ["s"], ["K"], ["slash", "x"], ["ctrl+p"], ["T"], ["tab", "enter"]]
)
async def test_every_screen_and_notice_is_ascii(keys: list[str], size: tuple[int, int]) -> None:
    import msgspec

    processes = tuple(make_process(n, 90 + n, "jörg", f"python träin.py …{n}") for n in range(1, 40))
    device = msgspec.structs.replace(make_device(0), processes=processes, name="Möbius ▲")
    snapshot = make_snapshot(
        sample=make_sample((device, make_device(1))),
        findings=(make_finding(0), make_finding(1, closed_s=1.0)),
    )
    app = make_app(FakeFeed(snapshot), abilities=ASCII_TERMINAL)
    async with app.run_test(size=size) as pilot:
        await pilot.press(*keys)
        await pilot.pause(0.3 if keys == ["ctrl+p"] else 0)
        app.notify("Größe — naïve…")
        await pilot.pause()
        async with asyncio.timeout(60):
            while "na?ve" not in (text := _text_of(app)) and size[0] >= 80:
                await pilot.pause()
        assert text.isascii(), sorted({character for character in text if not character.isascii()})
