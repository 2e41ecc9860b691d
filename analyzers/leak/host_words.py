"""What a finding on the memory of a host as a whole says, where it differs from that on a process."""

from ...engine.units import format_bytes

MEASURE = "host memory in use, less what the processes that report hold"
ADVICE = (
    "Look for files that pile up in /dev/shm or another tmpfs (df -h -t tmpfs), page-locked buffers that are "
    "never freed, data loader workers whose Python objects are copied on write, and other programs "
    "(ps aux --sort -rss)"
)


def word_title(bytes_per_s: float, grown_bytes: int) -> str:
    """Return the finding in one sentence.

    Args:
        bytes_per_s: How fast it grows.
        grown_bytes: What it grew since its onset.
    """
    pace = format_bytes(round(bytes_per_s * 60))
    grown = format_bytes(grown_bytes)
    return f"host memory fills by {pace} a minute, in no process that reports ({grown})"
