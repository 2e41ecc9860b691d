"""Families that thresholds may be chosen on; they are not scored."""

from ..run import Family
from .benign import BENIGN
from .crowded import CROWDED
from .faulty import FAULTY
from .hidden import HIDDEN
from .practice import PRACTICE
from .served import SERVED
from .stranded import STRANDED
from .uneven import UNEVEN

TUNING: tuple[Family, ...] = (*BENIGN, *FAULTY, *STRANDED, *PRACTICE, *UNEVEN, *CROWDED, *SERVED, *HIDDEN)
"""Families that thresholds may be chosen on; they are not scored."""
