"""The faults that are tried, one after another."""

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from msgspec.structs import replace as replace_fields

from tests.engine.agent.hubs import make_sample
from tests.engine.cluster.faults.path import FaultyPath
from tests.engine.cluster.remote import ListeningHub, free_port
from vramscope.engine.cluster.addresses import TcpAddress
from vramscope.engine.model import Sample

from ..remote import refuse_many
from .site import Site
from .trial import Row, Trial
from .viewers import is_lost

WINDOW_S = 40.0
WRONG_KEYS = 10_000
HOUR_S, HOUR_SAMPLES = 3600.0, 3600

Change = Callable[[FaultyPath], None]


def try_nothing(site: Site) -> Row:
    """Return how it is without a fault."""
    with site.view() as viewer:
        trial = Trial(viewer)
        time.sleep(WINDOW_S)
        return replace(trial.finish("none"), said=trial.describe_delays())


def try_kill(site: Site, away_s: float) -> Row:
    """Kill the agent, and start it again."""
    with site.view() as viewer:
        trial = Trial(viewer)
        site.kill()
        time.sleep(away_s)
        trial.note_end()
        site.start()
        return trial.finish(f"agent killed, started again after {away_s:g} s")


def try_path(site: Site, fault: str, break_: Change, mend: Change, lasts_s: float) -> Row:
    """Let the path of one viewer fail for a while."""
    with (
        FaultyPath(site.address, site.here) as path,
        site.view(path.address) as viewer,
        site.view(keys="witness") as witness,
    ):
        trial = Trial(viewer, witness)
        break_(path)
        time.sleep(lasts_s)
        trial.note_end()
        mend(path)
        if lasts_s == 0.0:  # it is over when it is noticed
            viewer.wait_for(is_lost, trial.began_s)
        return trial.finish(fault)


def try_link(site: Site, lasts_s: float) -> Row:
    """Cut the network itself, so that nobody is notified."""
    with site.view() as viewer:
        trial = Trial(viewer)
        site.set_link(is_up=False)
        time.sleep(lasts_s)
        trial.note_end()
        site.set_link(is_up=True)
        return trial.finish(f"network down without a word for {lasts_s:g} s")


def try_line(site: Site, fault: str, *, delay_s: float = 0.0, bytes_per_s: float | None = None) -> Row:
    """Follow through a line that is late or narrow."""
    with (
        FaultyPath(site.address, site.here) as path,
        site.view(path.address) as viewer,
        site.view(keys="witness") as witness,
    ):
        path.delay_s, path.bytes_per_s = delay_s, bytes_per_s
        trial = Trial(viewer, witness)
        time.sleep(WINDOW_S)
        row = trial.finish(fault)
        return replace(row, said=f"{row.said}; {trial.describe_delays()}")


def try_long_history(site: Site, bytes_per_s: float) -> Row:
    """Join an agent that remembers an hour, through a narrow line."""
    address = TcpAddress(site.here, free_port())
    with (
        ListeningHub(site.key, site.keys_folder("agent"), address) as hub,
        FaultyPath(address, site.here) as path,
    ):
        hub.producer.push([make_hour_of_eight(seq) for seq in range(HOUR_SAMPLES)])
        path.bytes_per_s = bytes_per_s
        began_s = time.monotonic()
        with site.view(path.address) as viewer:
            live_s = viewer.wait_for(lambda line: line["seq"] == HOUR_SAMPLES - 1, began_s) or math.inf
            last = viewer.end()
        sent = f"{path.handed_on_bytes / 1e3:,.0f} kB for {len(last['remembered']):,} samples"
        fault = f"an hour of eight devices joined at {bytes_per_s / 1000:g} kB/s"
        return Row(fault, None, live_s - began_s, int(last["missing"]), sent, "")


def make_hour_of_eight(seq: int) -> Sample:
    """Return one sample of eight devices."""
    devices = (
        make_sample(seq, used_gib=seq % 70 + index, uuid=f"GPU-{index}").devices[0] for index in range(8)
    )
    return replace_fields(make_sample(seq), devices=tuple(devices))


def try_pause(site: Site, lasts_s: float) -> Row:
    """Stop the viewer for a while."""
    with site.view() as viewer, site.view(keys="witness") as witness:
        trial = Trial(viewer, witness)
        viewer.pause()
        time.sleep(lasts_s)
        trial.note_end()
        viewer.resume()
        return trial.finish(f"viewer stopped for {lasts_s:g} s")


def try_revoking(site: Site, lasts_s: float) -> Row:
    """Take the key back while its viewer is connected, and allow it again."""
    with site.view() as viewer, site.view(keys="witness") as witness:
        trial = Trial(viewer, witness)
        site.allow(site.witness)
        time.sleep(lasts_s)
        trial.note_end()
        site.allow(site.viewer, site.witness)
        return trial.finish(f"key revoked while connected, allowed again after {lasts_s:g} s")


def try_wrong_keys(site: Site) -> Row:
    """Knock with wrong keys while a viewer follows."""
    with site.view() as viewer:
        trial = Trial(viewer)
        knocking = threading.Thread(target=refuse_many, args=(site.address, site.key.public, WRONG_KEYS))
        knocking.start()
        knocking.join()
        trial.note_end()
        taken_s = time.monotonic() - trial.began_s
        row = trial.finish(f"{WRONG_KEYS:,} connections with wrong keys in {taken_s:.0f} s")
        return replace(row, said=f"{row.said}; {trial.describe_delays()}")


def try_relay(site: Site, away_s: float) -> Iterator[Row]:
    """Kill the relay between, and then the agent behind it."""
    site.start_relay()
    with site.view(site.relay_address) as viewer, site.view(keys="witness") as witness:
        trial = Trial(viewer, witness)
        site.kill_relay()
        time.sleep(away_s)
        trial.note_end()
        site.start_relay()
        yield trial.finish(f"relay killed, started again after {away_s:g} s")
    with site.view(site.relay_address) as viewer:
        trial = Trial(viewer)
        site.kill()
        time.sleep(away_s)
        trial.note_end()
        site.start()
        yield trial.finish(f"agent behind a relay killed, started again after {away_s:g} s")
    site.kill_relay()


def try_clocks(site: Site) -> Iterator[Row]:
    """Let the agent's clock be right, an hour ahead and an hour behind."""
    right: list[str] = []
    for offset_s, name in ((0.0, "right"), (HOUR_S, "1 h ahead"), (-HOUR_S, "1 h behind")):
        site.set_clock(offset_s)
        site.restart()
        with site.view() as viewer:
            trial = Trial(viewer)
            time.sleep(WINDOW_S)
            newest = viewer.lines[-1]
            row = trial.finish(f"the agent's clock is {name}")
        right = right or newest["levels"]
        offset = newest["clock_offset_s"]
        clock = "nothing of its clock" if offset is None else f"its clock {offset:+,.1f} s"
        risks = "the same risks" if newest["levels"] == right else f"risks {newest['levels']}, not {right}"
        yield replace(row, said=f"{row.said}; {clock}; {risks}")
    site.set_clock(0.0)
    site.restart()


def try_setting_back(site: Site) -> Row:
    """Set the agent's clock back while a viewer is cut off."""
    with FaultyPath(site.address, site.here) as path, site.view(path.address) as viewer:
        trial = Trial(viewer)
        path.cut()
        time.sleep(5.0)
        site.set_clock(-HOUR_S)
        time.sleep(5.0)
        trial.note_end()
        path.heal()
        row = trial.finish("the agent's clock is set back by 1 h during a cut of 10 s")
    site.set_clock(0.0)
    return row


CASES: dict[str, Callable[[Site], Iterable[Row]]] = {
    "none": lambda site: [try_nothing(site)],
    "kill": lambda site: [try_kill(site, 4.0)],
    "cut": lambda site: [
        try_path(site, "cut with a reset, nothing listens for 10 s", FaultyPath.cut, FaultyPath.heal, 10.0)
    ],
    "link": lambda site: [try_link(site, lasts_s) for lasts_s in (10.0, 30.0) if site.has_namespaces],
    "half-open": lambda site: [
        try_path(site, "half open: forgotten between both ends", FaultyPath.forget, lambda _: None, 0.0)
    ],
    "stall": lambda site: [
        try_path(site, "everything stands still for 30 s", FaultyPath.stall, FaultyPath.resume, 30.0)
    ],
    "late": lambda site: [try_line(site, "200 ms late each way", delay_s=0.2)],
    "narrow": lambda site: [
        try_line(site, "20 kB/s", bytes_per_s=20_000.0),
        try_long_history(site, 20_000.0),
    ],
    "slow-viewer": lambda site: [try_pause(site, 20.0)],
    "revoke": lambda site: [try_revoking(site, 10.0)],
    "wrong-keys": lambda site: [try_wrong_keys(site)],
    "relay": lambda site: try_relay(site, 4.0),
    "clock": lambda site: (*try_clocks(site), try_setting_back(site)),
}
"""The faults by name, in the order in which they are tried."""
