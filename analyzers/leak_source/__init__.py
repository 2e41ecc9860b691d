"""Which line a leak comes from: recorded allocations that outlive their steps, by their stacks."""

from .growth import LeakSource, find_sources
from .holdings import measure_holdings
from .inquirer import LeakSourceInquirer

__all__ = ["LeakSource", "LeakSourceInquirer", "find_sources", "measure_holdings"]
