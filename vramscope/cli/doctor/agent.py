"""The private runtime folder, the agent that serves it, and ZeroMQ between them."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from vramscope.engine.errors import HubUnreachableError, RuntimeFolderError
from vramscope.engine.paths import check_private, locate_runtime_folder
from vramscope.engine.units import format_age
from vramscope.engine.wire.endpoints import holder_pid, is_hub_alive

from .check import Check

if TYPE_CHECKING:
    from vramscope.engine.model import HubStatus

AGENT_ANSWERS_WITHIN_S = 2.0


def examine_runtime_folder() -> Iterator[Check]:
    """Look at whether the runtime folder is, or would be, this user's own."""
    folder = locate_runtime_folder()
    if not folder.exists() and not folder.is_symlink():
        yield Check("runtime folder", "ok", f"{folder} (will be made when an agent starts)")
        return
    try:
        check_private(folder)
    except RuntimeFolderError as error:
        found, _, advice = str(error).rpartition(": ")
        yield Check("runtime folder", "problem", found, advice, error.exit_code)
    else:
        yield Check("runtime folder", "ok", f"{folder} is private to this user")


def examine_agent() -> Iterator[Check]:
    """Look at whether an agent runs and answers."""
    folder = locate_runtime_folder()
    if not is_hub_alive(folder):
        yield Check("agent", "note", "none runs; `vramscope` starts one while it is open")
        return
    from vramscope.engine.viewer.client import connect

    try:
        with connect(folder, timeout_s=AGENT_ANSWERS_WITHIN_S) as client:
            hub = client.snapshot(timeout_s=0.0).hub
    except HubUnreachableError as error:
        advice = f"end process {holder_pid(folder)} and start `vramscope` again"
        yield Check("agent", "problem", str(error), advice, error.exit_code)
        return
    if hub is None:
        yield Check(
            "agent", "warning", f"process {holder_pid(folder)} serves {folder} and tells nothing of itself"
        )
        return
    age = format_age(max(0.0, time.time() - hub.started_s))
    yield Check("agent", "ok", f"process {hub.pid}, version {hub.version}, up {age}")
    for worker in hub.workers:
        restarts = (
            f", {worker.restarts} restart{'s' if worker.restarts > 1 else ''}" if worker.restarts else ""
        )
        status = f"worker {worker.name}: {worker.state}{restarts}"
        is_well = worker.state in {"running", "starting"} and worker.reason is None
        yield Check("worker", "ok" if is_well else "warning", status, worker.reason or "")
    yield from _examine_alerts(hub)


def _examine_alerts(hub: "HubStatus") -> Iterator[Check]:
    """Look at whether people are told of findings."""
    for hook in hub.hooks:
        counts = f"{hook.delivered} delivered, {hook.failed} failed, {hook.dropped} dropped"
        is_well = hook.reason is None and not hook.dropped
        found = f"{hook.name} {hook.target}: {counts}"
        yield Check("alerts", "ok" if is_well else "warning", found, hook.reason or "")
    for note in hub.notes:
        yield Check("alerts", "warning", note)


def examine_zeromq() -> Iterator[Check]:
    """Look at whether ZeroMQ is there and a message gets through a socket file."""
    import tempfile

    import zmq

    versions = f"pyzmq {zmq.__version__}, libzmq {zmq.zmq_version()}"
    if not zmq.has("ipc"):
        yield Check(
            "ZeroMQ", "problem", f"{versions}: built without ipc", "pip install --force-reinstall pyzmq", 1
        )
        return
    with tempfile.TemporaryDirectory(prefix="vramscope-") as folder, zmq.Context() as context:
        sender = context.socket(zmq.PUSH)
        receiver = context.socket(zmq.PULL)
        sender.linger = receiver.linger = 0
        receiver.bind(f"ipc://{folder}/check.sock")
        sender.connect(f"ipc://{folder}/check.sock")
        sender.send(b"ping")
        has_arrived = bool(receiver.poll(1000)) and receiver.recv() == b"ping"
        sender.close()
        receiver.close()
    if has_arrived:
        yield Check("ZeroMQ", "ok", f"{versions}: a message over ipc arrived")
    else:
        yield Check("ZeroMQ", "problem", f"{versions}: a message over ipc did not arrive within 1 s", "", 1)
