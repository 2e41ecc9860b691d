"""A replay in the real application: the real thread reads a real recording."""

from collections.abc import Callable
from pathlib import Path

from textual.pilot import Pilot

from tests.clocks import HandClock
from tests.engine.replay.recordings import fresh_analyzers
from tests.tui.canned import NODE, UNICODE_COLOR, StillClock
from vramscope.engine.replay.feed import ReplayFeed
from vramscope.engine.replay.player import ReplayOptions
from vramscope.engine.replay.tapes import RecordingTape
from vramscope.engine.settings import Settings
from vramscope.engine.viewer.snapshot import ReplayState
from vramscope.tui.app import VramscopeApp
from vramscope.tui.live.process_signals import SignalPolicy
from vramscope.tui.terminal.abilities import TerminalAbilities


def make_replay(
    path: Path, *, abilities: TerminalAbilities = UNICODE_COLOR, options: ReplayOptions | None = None
) -> VramscopeApp:
    """Return an application that replays a recording; its clock stands, so that nothing plays by itself."""
    feed = ReplayFeed(
        lambda: [RecordingTape(path)], make_analyzers=fresh_analyzers, options=options, clock=HandClock()
    )
    return VramscopeApp(
        feed,
        settings=Settings(),
        abilities=abilities,
        clock=StillClock(),
        signal_policy=SignalPolicy(local_node=NODE, is_replay=True),
        driver_class=None,
    )


def replay_of(app: VramscopeApp) -> ReplayState | None:
    """Return what the screens draw of the replay."""
    return app.shown.replay


async def press_until(
    pilot: Pilot[None], keys: list[str], is_there: Callable[[ReplayState], bool]
) -> ReplayState:
    """Press keys and wait until the screens show what they ask for, worked out."""
    app = pilot.app
    assert isinstance(app, VramscopeApp)
    await pilot.press(*keys)
    for _ in range(6000):
        replay = replay_of(app)
        if replay is not None and not replay.is_catching_up and is_there(replay):
            await pilot.pause()
            return replay
        await pilot.pause(0.01)
    raise AssertionError(f"after {keys}: {replay_of(app)}")
