"""How much may be asked of an agent: by one connection, and by all connections of one key together."""

from collections.abc import Callable
from dataclasses import dataclass, field

BURST = 60.0
PER_SECOND = 20.0
"""What a peer may ask at once, and per second."""
JOIN_COSTS = 20.0
"""A join is answered with the whole history, and costs as much as this many other requests."""
MAX_PEERS_OF_KEY = 64
"""Of one key: whoever may only read cannot take the places of all others."""
KEY_BURST = MAX_PEERS_OF_KEY * (JOIN_COSTS + 1.0)
KEY_PER_SECOND = 8.0 * PER_SECOND
"""The same for a key: at once so much that all its viewers may join after a restart of the agent."""


@dataclass(slots=True)
class Allowance:
    """What may still be asked; comes back with time, up to a burst."""

    most: float
    per_second: float
    noted_s: float
    """When it was last asked for, in monotonic seconds."""
    left: float = field(init=False)

    def __post_init__(self) -> None:
        self.left = self.most

    def spend(self, cost: float, now_s: float) -> bool:
        """Return whether a request may be answered now, and count it."""
        self.left = min(self.most, self.left + self.per_second * (now_s - self.noted_s))
        self.noted_s = now_s
        if self.left < cost:
            return False
        self.left -= cost
        return True


class KeyAllowances:
    """One allowance a key, whatever number of connections it has and whatever these call themselves."""

    def __init__(self) -> None:
        self._of_key: dict[str, Allowance] = {}

    def spend(self, user: str, cost: float, now_s: float) -> bool:
        """Return whether a request of this key may be answered now, and count it."""
        if user not in self._of_key:
            self._of_key[user] = Allowance(KEY_BURST, KEY_PER_SECOND, now_s)
        return self._of_key[user].spend(cost, now_s)

    def forget(self, is_over: Callable[[str], bool]) -> None:
        """Forget the keys of which this holds."""
        self._of_key = {user: it for user, it in self._of_key.items() if not is_over(user)}
