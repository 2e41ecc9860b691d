"""Whether a person would see that a figure changed."""


def is_visible(before: float | None, after: float | None, share: float) -> bool:
    """Return whether a figure changed by more than a share of what it was, or became known or unknown."""
    if before is None or after is None:
        return before is not after
    return abs(after - before) > share * abs(before)
