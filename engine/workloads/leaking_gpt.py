"""Trains a small GPT that keeps what it should free: it leaks, fragments and runs out of memory.

Run by `vramscope demo` on a simulated device; a plain script otherwise, which asks for "cuda". Every
second it evaluates and keeps the logits, as a logging bug does; sequence lengths vary, which fragments the
cache. When memory is out it lets go of what it kept and goes on, so that the story repeats.
"""

from __future__ import annotations

import argparse
import random
import time

import torch
from small_gpt import SmallGPT, language_loss  # found next to this script

VOCABULARY = 8192
# Positions that the model knows; batches are far shorter, so that a step is quick on any machine.
CONTEXT = 16_384
BATCH = 4
LENGTHS = range(64, 257, 8)
EVALUATED_LENGTHS = range(64, 145)
# Between two evaluations: what is kept grows as fast on a slow machine as on a fast one.
EVALUATE_EVERY_S = 0.9


def train(steps: int, seed: int, evaluated: int, pace_s: float) -> None:
    """Train on random tokens until `steps` steps are done, whatever happens on the way."""
    torch.manual_seed(seed)
    lengths = random.Random(seed)  # noqa: S311 - lengths of sequences, not secrets
    model = SmallGPT(VOCABULARY, width=256, layers=4, heads=4, longest=CONTEXT).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    kept: list[torch.Tensor] = []
    evaluated_s = time.monotonic()
    for step in range(1, steps + 1):
        started_s = time.monotonic()
        told = ""
        try:
            told = f"loss {train_step(model, optimizer, lengths.choice(LENGTHS)):.3f}"
            if time.monotonic() - evaluated_s >= EVALUATE_EVERY_S:
                evaluated_s = time.monotonic()
                kept.append(evaluate(model, evaluated, lengths.choice(EVALUATED_LENGTHS)))
        except torch.OutOfMemoryError as error:
            told = str(error)
            kept.clear()
            optimizer.zero_grad(set_to_none=True)
        if not kept:
            torch.cuda.empty_cache()  # not above: the error holds on to tensors
        print(f"step {step}: {told}, {len(kept)} evaluations kept", flush=True)  # noqa: T201
        time.sleep(max(0.0, pace_s - (time.monotonic() - started_s)))


def train_step(model: SmallGPT, optimizer: torch.optim.Optimizer, length: int) -> float:
    tokens = torch.randint(VOCABULARY, (BATCH, length), device="cuda")
    loss: torch.Tensor = language_loss(model(tokens), tokens)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    value: float = loss.item()
    return value


def evaluate(model: SmallGPT, sequences: int, length: int) -> torch.Tensor:
    """Return the logits of some sequences, and with them the whole graph: the bug that is shown."""
    tokens = torch.randint(VOCABULARY, (sequences, length), device="cuda")
    logits: torch.Tensor = model(tokens)
    return logits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=100_000, help="steps to train (default 100000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and batches (default 0)")
    parser.add_argument("--evaluate", type=int, default=1, help="sequences of an evaluation (default 1)")
    parser.add_argument(
        "--pace",
        type=float,
        default=0.0,
        help="least seconds from one step to the next (default 0: as fast as it goes)",
    )
    arguments = parser.parse_args()
    train(arguments.steps, arguments.seed, arguments.evaluate, arguments.pace)


if __name__ == "__main__":
    main()
