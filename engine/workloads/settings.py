"""Settings of steps, models and trainings that errors name, on a command line and in Python.

The processes that trace and train raise such errors, and do not know who reads them.
"""

from __future__ import annotations

from ..errors import Setting

FACTORY = Setting("--factory")
INPUTS = Setting("--input", "inputs")
LAYERS = Setting("--layers")
SEQ_LENGTH = Setting("--seq", "seq_length")
BATCH_SIZE = Setting("--batch-size")
OPTIMIZER = Setting("--optimizer")
RANK = Setting("--rank")
RANKS = Setting("--ranks")
FULL = Setting("--full", "is_full")
# Of trainings by phase: a field of `PhaseTraining` each.
MODEL_SIZE = Setting("--model-size")
HUGGING_FACE = Setting("--model hf:DIR", "hugging_face")
PRIVACY = Setting("--dp-mode", "privacy")
FIXED = Setting("--fix", "is_fixed")
CHECKPOINTED = Setting("--checkpoint", "is_checkpointed")
STRATEGY = Setting("--strategy")
NUM_STEPS = Setting("--num-steps")
WARMUP_STEPS = Setting("--warmup", "warmup_steps")
LEARNING_RATE = Setting("--learning-rate")
NOISE_MULTIPLIER = Setting("--noise-multiplier")
MAX_GRAD_NORM = Setting("--max-grad-norm")
DEVICE = Setting("--device")
# Arguments that a user's factory may have.
OF_FACTORY = {"batch_size": BATCH_SIZE, "seq_length": SEQ_LENGTH, "layers": LAYERS}
