"""Readers of files that other tools wrote: tolerant of dialects, strict about figures."""

from .memory_trace import MemoryTrace, TraceIteration, read_memory_trace
from .memory_trace_name import TraceName, parse_trace_name
from .memory_trace_run import MemoryTraceRun, read_memory_trace_run

__all__ = [
    "MemoryTrace",
    "MemoryTraceRun",
    "TraceIteration",
    "TraceName",
    "parse_trace_name",
    "read_memory_trace",
    "read_memory_trace_run",
]
