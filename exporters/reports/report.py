"""Any report of the suite."""

from typing import TypeAlias, Union

from .distributed import DistributedReport
from .fragment import FragmentReport
from .leak import LeakReport
from .oom import OomReport
from .profile import ProfileReport

Report: TypeAlias = Union[ProfileReport, OomReport, LeakReport, FragmentReport, DistributedReport]  # noqa: UP007 - an alias
"""What a verb of the suite prints."""
