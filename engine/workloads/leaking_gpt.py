"""Trains a small GPT that keeps what it should let go: it leaks, fragments and runs out of memory.

Run by `vramscope demo` on a simulated device; a plain script otherwise, which asks for "cuda". Every few
steps it evaluates and keeps the logits, as a logging bug does; sequence lengths vary, which fragments the
cache. When memory is out it lets go of what it kept and goes on, so that the story repeats.
"""

from __future__ import annotations

import argparse
import random
import time

import torch
from small_gpt import SmallGPT, language_loss  # found beside this script

VOCABULARY = 8192
CONTEXT = 16_384
"""Positions that the model knows; batches are far shorter, so that a step is quick on any machine."""
LENGTHS = range(64, 257, 8)
EVALUATED_LENGTHS = range(32, 97)
EVALUATE_EVERY = 2
"""Steps from one evaluation to the next."""


def train(steps: int, seed: int, batch: int, pace_s: float) -> None:
    """Train on random tokens until `steps` steps are done, whatever happens on the way.

    Args:
        steps: Steps to train.
        seed: Seed of weights and batches.
        batch: Sequences of a batch.
        pace_s: Least seconds from one step to the next.
    """
    torch.manual_seed(seed)
    lengths = random.Random(seed)  # noqa: S311 - lengths of sequences, not secrets
    model = SmallGPT(VOCABULARY, width=256, layers=4, heads=4, longest=CONTEXT).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    kept: list[torch.Tensor] = []
    for step in range(1, steps + 1):
        started_s = time.monotonic()
        try:
            loss = train_step(model, optimizer, batch, lengths.choice(LENGTHS))
            if step % EVALUATE_EVERY == 0:
                kept.append(evaluate(model, batch, lengths.choice(EVALUATED_LENGTHS)))
        except torch.OutOfMemoryError as error:
            print(f"step {step}: {error}", flush=True)  # noqa: T201 - a script talks to whoever runs it
            kept.clear()
            optimizer.zero_grad(set_to_none=True)
            continue
        print(f"step {step}: loss {loss:.3f}, {len(kept)} evaluations kept", flush=True)  # noqa: T201
        time.sleep(max(0.0, pace_s - (time.monotonic() - started_s)))


def train_step(model: SmallGPT, optimizer: torch.optim.Optimizer, batch: int, length: int) -> float:
    """Train on one batch of sequences of `length` tokens and return the loss."""
    tokens = torch.randint(VOCABULARY, (batch, length), device="cuda")
    loss: torch.Tensor = language_loss(model(tokens), tokens)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    value: float = loss.item()
    return value


def evaluate(model: SmallGPT, batch: int, length: int) -> torch.Tensor:
    """Return the logits of a small batch, and with them the whole graph: the bug that is shown."""
    tokens = torch.randint(VOCABULARY, (max(1, batch // 4), length), device="cuda")
    logits: torch.Tensor = model(tokens)
    return logits


def main() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=100_000, help="steps to train (default 100000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and batches (default 0)")
    parser.add_argument("--batch", type=int, default=4, help="sequences of a batch (default 4)")
    parser.add_argument(
        "--pace",
        type=float,
        default=0.0,
        help="least seconds from one step to the next (default 0: as fast as it goes)",
    )
    arguments = parser.parse_args()
    train(arguments.steps, arguments.seed, arguments.batch, arguments.pace)


if __name__ == "__main__":
    main()
