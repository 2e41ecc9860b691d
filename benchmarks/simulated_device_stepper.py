"""The training process of the benchmark of the simulated device: a step for each line that it reads."""

import importlib.util
import json
import os
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

LAYERS, WIDTH, HEADS, VOCABULARY = 12, 768, 12, 10_000
BATCH, TOKENS = 2, 128
CARD_BYTES = 24 << 30


def main() -> None:
    """Train, a step at a time."""
    import torch

    is_simulated = bool(os.environ["STEPPER_SIMULATED"])
    if is_simulated:
        install()
    device = "cuda" if is_simulated else "cpu"
    torch.manual_seed(0)
    model = make_model(torch).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, foreach=True)
    parameters = sum(it.numel() for it in model.parameters())
    name = f"GPT of {parameters / 1e6:.0f} M parameters, batch {BATCH}x{TOKENS}"
    for _ in sys.stdin:
        start_s, start_cpu_s = time.perf_counter(), time.process_time()
        loss = step(torch, model, optimizer, device)
        taken = {"seconds": time.perf_counter() - start_s, "cpu_s": time.process_time() - start_cpu_s}
        print(json.dumps({**taken, "loss": loss, "model": name}), flush=True)


def step(torch: Any, model: Any, optimizer: Any, device: str) -> float:  # noqa: ANN401  (torch has no types)
    """Make one step and return the loss."""
    tokens = torch.randint(0, VOCABULARY, (BATCH, TOKENS)).to(device)
    logits = model(tokens)
    loss = torch.nn.functional.cross_entropy(logits.view(-1, VOCABULARY), tokens.view(-1))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return float(loss.item())


def make_model(torch: Any) -> Any:  # noqa: ANN401  (torch has no types)
    """Return a GPT with pre-normalisation and causal attention."""
    nn = torch.nn

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
            self.project, self.merge = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.mix = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

        def forward(self, x: Any) -> Any:  # noqa: ANN401  (torch has no types)
            batch, tokens, _ = x.shape
            parts = self.project(self.norms[0](x)).view(batch, tokens, 3, HEADS, WIDTH // HEADS)
            query, key, value = parts.permute(2, 0, 3, 1, 4)
            attended = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + self.merge(attended.transpose(1, 2).reshape(batch, tokens, WIDTH))
            return x + self.mix(self.norms[1](x))

    return nn.Sequential(
        nn.Embedding(VOCABULARY, WIDTH),
        *(Block() for _ in range(LAYERS)),
        nn.LayerNorm(WIDTH),
        nn.Linear(WIDTH, VOCABULARY, bias=False),
    )


def install() -> None:
    """Put the simulated device into this process, as the launcher does."""
    root = Path(os.environ["STEPPER_ROOT"])
    model = load("vramscope_allocator_model", root / "analyzers" / "allocator_model")
    simulation = load("vramscope_simulation", root / "engine" / "simulation")
    simulation.install({"total_bytes": CARD_BYTES}, model)


def load(name: str, folder: Path) -> ModuleType:
    """Return a package that was loaded by its path."""
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{folder} holds no package")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
