"""Draw the picture of memory by module: a small encoder, profiled for two steps on the CPU."""

import tempfile
from pathlib import Path

from vramscope.cli.verbs.modules import read_profiled
from vramscope.engine.clock import SystemClock
from vramscope.memory.module_profiler import SimpleMemoryProfiler
from vramscope.tui.modules.profiled import Profiled
from vramscope.tui.modules.screen import view_breakdown
from vramscope.tui.screens.terminal_app import TerminalApp
from vramscope.tui.terminal.abilities import TerminalAbilities

SIZE = (120, 32)
STEPS, LAYERS, WIDTH, TOKENS = 2, 4, 256, 128


async def draw_breakdown(pictures: Path) -> Path:
    """Profile the encoder, and write what the screen shows as SVG."""
    with tempfile.TemporaryDirectory() as folder:
        profile_encoder(Path(folder))
        (found,) = read_profiled([Path(folder)])
    view = view_breakdown(lambda: [Profiled("rank0_dp0_tp0", found.memory)])
    app = TerminalApp(TerminalAbilities(), view=view, clock=SystemClock(), driver_class=None)
    async with app.run_test(size=SIZE) as pilot:
        while view.screen.profile is None:
            await pilot.pause(0.05)
        await pilot.press("down", "end", "down", "down")
        await pilot.pause()
        picture = app.export_screenshot(title="vramscope (measured on a CPU)")
    path = pictures / f"breakdown-{SIZE[0]}x{SIZE[1]}.svg"
    path.write_text(picture, encoding="utf-8")
    return path


def profile_encoder(folder: Path) -> None:
    """Train an encoder for two steps, and write its profile into a folder."""
    import torch

    layer = torch.nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
    model = torch.nn.Sequential(torch.nn.Embedding(4096, WIDTH), torch.nn.TransformerEncoder(layer, LAYERS))
    optimizer = torch.optim.AdamW(model.parameters())
    profiler = SimpleMemoryProfiler(model, optimizer, str(folder), total_steps=STEPS)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.randint(4096, (4, TOKENS))).square().mean().backward()
        optimizer.step()
        profiler.step()
