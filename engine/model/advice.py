"""What a training process may be advised to do."""

from typing import Final, Literal, get_args

AdviceAction = Literal["empty_cache", "skip_long_batch", "reduce_batch", "checkpoint"]
"""What a training process is asked to do at the end of a step. The first the probe does itself; the others
are for the callback of the program, which knows what they mean to it."""

ADVICE_ACTIONS: Final[tuple[AdviceAction, ...]] = get_args(AdviceAction)
"""All of them."""
