"""Families that are scored; no threshold is chosen on any of them."""

from ..run import Family
from .fragmented import FRAGMENTED
from .healthy_floors import HEALTHY_FLOORS
from .healthy_steps import HEALTHY_STEPS
from .leaks import LEAKS
from .overruns import OVERRUNS
from .practice import PRACTICE

SCORED: tuple[Family, ...] = (*HEALTHY_STEPS, *HEALTHY_FLOORS, *LEAKS, *OVERRUNS, *PRACTICE, *FRAGMENTED)
