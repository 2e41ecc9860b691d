"""Trying hooks out: an alert that says of itself that it is a test."""

import time

from ..model import Evidence, Finding, HookStatus, make_finding_id
from ..settings import AlertSettings
from .crossings import Crossing
from .delivery import Delivery
from .job import list_hooks
from .payload import make_alert


def try_hooks(settings: AlertSettings, node: str, version: str) -> tuple[HookStatus, ...]:
    """Send a test alert to every hook, whatever level and kinds are set; return how each fared.

    Args:
        settings: Which hooks there are.
        node: Name of this node.
        version: Version of vramscope, told to receivers.
    """
    delivery = Delivery(settings, version)
    alert = make_alert(Crossing("opened", _make_finding(node), "low"), version, is_test=True)
    delivery.put_alert(alert)
    delivery.finish(max((hook.longest_s for hook in list_hooks(settings)), default=0.0))
    return delivery.status()


def _make_finding(node: str) -> Finding:
    now_s = time.time()
    return Finding(
        id=make_finding_id("test", node, None, now_s),
        kind="test",
        node=node,
        device_uuid=None,
        device=None,
        severity="low",
        title="This alert was sent to try out the hook",
        opened_s=now_s,
        updated_s=now_s,
        evidence=(Evidence("example", 1 << 30, "bytes"),),
        method="Nothing was measured: somebody ran `vramscope agent --test-alert`.",
        advice="nothing",
    )
