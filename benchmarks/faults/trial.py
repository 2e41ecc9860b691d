"""One fault, tried on one viewer while another looks on, and the row of the table that comes of it."""

import math
import time
from dataclasses import dataclass

from .viewers import Viewer, is_live_after, is_lost

SETTLE_S = 5.0


@dataclass(frozen=True)
class Row:
    """What became of one fault."""

    fault: str
    noticed_s: float | None
    """From the fault to a picture that is lost; None where it never was."""
    recovered_s: float | None
    """From its end to a picture with a newer sample; None where it was live all the time."""
    missing: int
    """Samples that the viewer has not in the end, though they lie between others."""
    said: str
    """What its picture said."""
    harm: str
    """What became meanwhile of a viewer that the fault was not meant for, in words; empty where none was."""


class Trial:
    """Watches a viewer from before a fault until after it.

    Args:
        viewer: Whom the fault is meant for.
        witness: Whom it is not.
    """

    def __init__(self, viewer: Viewer, witness: Viewer | None = None) -> None:
        self._viewer, self._witness = viewer, witness
        time.sleep(SETTLE_S)
        self.began_s = self._ended_s = time.monotonic()
        self._seq, self._hub_id = self._newest()

    def note_end(self) -> None:
        """Take note that the fault is over from now on."""
        self._ended_s = time.monotonic()
        self._seq, self._hub_id = self._newest()

    def finish(self, fault: str) -> Row:
        """Wait until the viewer is up to date, and return what became of it."""
        recovered_s = self._viewer.wait_for(is_live_after(self._seq, self._hub_id), self._ended_s)
        time.sleep(SETTLE_S)
        lost_s = self._viewer.find(is_lost, self.began_s)
        back_s = math.inf if recovered_s is None else recovered_s - self._ended_s
        return Row(
            fault,
            None if lost_s is None else lost_s - self.began_s,
            None if lost_s is None else back_s,
            int(self._viewer.end()["missing"]),
            "; ".join(self._viewer.said(self.began_s)) or "live throughout",
            "" if self._witness is None else self._describe_harm(self._witness),
        )

    def describe_delays(self) -> str:
        """Return how old samples were when the picture had them, in words."""
        delays_s = self._viewer.delays_s(self.began_s)
        if not delays_s:
            return "no sample"
        p50, p99 = (delays_s[min(len(delays_s) - 1, int(share * len(delays_s)))] for share in (0.5, 0.99))
        return f"sample to picture p50 {1000 * p50:.0f} ms, p99 {1000 * p99:.0f} ms of {len(delays_s)}"

    def _newest(self) -> tuple[int, str | None]:
        line = next(line for line in reversed(self._viewer.lines) if line["seq"] is not None)
        return int(line["seq"]), line["hub_id"]

    def _describe_harm(self, witness: Viewer) -> str:
        reasons = witness.said(self.began_s)
        missing = int(witness.end()["missing"])
        return "; ".join([*(f"lost: {reason}" for reason in reasons), f"{missing} missing"])
