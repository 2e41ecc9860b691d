"""What a verb of the suite brings: how its report is made of a watch."""

from collections.abc import Callable
from typing import TypeAlias

from vramscope.exporters.reports.report import Report
from vramscope.exporters.reports.run_log import RunLog
from vramscope.memory.watch import Watch

Build: TypeAlias = Callable[[Watch, RunLog], Report]
"""Makes the report of a period of a watch."""
