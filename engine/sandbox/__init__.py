"""A sandbox for processes that read files of others: what they may open and ask of the kernel."""

from .confinement import Protection, confine, confine_decoder, find_protection

__all__ = ["Protection", "confine", "confine_decoder", "find_protection"]
