"""Profiles by module: ours with exact bytes, the `memory.log` of InternLM, and the charts that it draws."""

from .finding import find_profiles, is_module_memory, read_module_memory

__all__ = ["find_profiles", "is_module_memory", "read_module_memory"]
