"""How long processes that have ended stay in the samples, so that a person sees what became of them."""

from collections.abc import Iterable, Sequence

from .track import RankTrack

ENDED_SHOWN_S = 10.0
"""On a device that a driver knows, and that stays when its processes go."""
MODELLED_SHOWN_S = 600.0
"""On a device that goes with its processes: whoever was away meanwhile finds both."""


def keep_ended(ended: Sequence[RankTrack], living: Iterable[RankTrack], now_s: float) -> list[RankTrack]:
    """Return the processes that have ended and are still to be shown.

    One on a modelled device gives way to the next process that is met on such a device.

    Args:
        ended: Processes that have ended, the oldest first.
        living: Those that have not.
        now_s: Monotonic seconds.
    """
    if not ended:
        return []
    newest_s = max((track.met_s for track in (*living, *ended) if track.is_modelled), default=None)
    return [track for track in ended if _is_shown(track, newest_s, now_s)]


def _is_shown(track: RankTrack, newest_s: float | None, now_s: float) -> bool:
    ended_s = track.ended_s or 0.0
    if now_s - ended_s < ENDED_SHOWN_S:
        return True
    is_followed = newest_s is not None and newest_s >= ended_s
    return track.is_modelled and not is_followed and now_s - ended_s < MODELLED_SHOWN_S
