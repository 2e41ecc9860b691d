"""What is said where some devices of a node are followed and others are not: the rest may fare as it will."""

from ..engine.model import Sample


def describe_left_out(sample: Sample) -> tuple[str, str]:
    """Return how many devices of a node are followed, in full and in few words: never in none."""
    followed = len(sample.devices)
    total = len(sample.devices) + sample.devices_left_out
    return f"{followed:,} of {total:,} devices followed", f"{followed:,}/{total:,} followed"


def describe_mismatch(sample: Sample) -> tuple[str, ...]:
    """Return that no device of a node is followed, and why, from the complete form to the shortest."""
    told = sample.notes[0] if sample.notes else "No device matches --devices"
    return told, told.partition(": ")[0], "No device matches"
