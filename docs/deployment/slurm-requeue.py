#!/usr/bin/env python3
"""Drain a Slurm node whose GPU failed, and requeue the jobs on this GPU; for the setting `alerts.command`.

Runs as a user whom Slurm allows both (SlurmUser, root or an operator). `--dry-run` prints the commands.
"""

import json
import os
import shlex
import socket
import subprocess
import sys

KINDS = {"device_error", "device_lost", "memory_errors"}
SEVERITIES = {"high", "critical"}


def find_jobs(uuid: str) -> list[str]:
    """Return the Slurm jobs with a process on a device, as the agent of this node knows them."""
    done = subprocess.run(["vramscope", "--once", "--json"], stdout=subprocess.PIPE, check=False, timeout=20)
    try:
        devices = json.loads(done.stdout)["devices"]
    except (ValueError, KeyError, TypeError):
        return []
    found = [
        process.get("slurm_job")
        for device in devices
        if device["uuid"] == uuid
        for process in device.get("processes") or ()
    ]
    return sorted({job for job in found if job})


def main() -> int:
    given = {name: os.environ.get(f"VRAMSCOPE_FINDING_{name}", "") for name in ("EVENT", "KIND", "SEVERITY")}
    is_due = given["KIND"] in KINDS and given["SEVERITY"] in SEVERITIES and given["EVENT"] != "closed"
    if not is_due or os.environ.get("VRAMSCOPE_FINDING_IS_TEST"):
        return 0
    title = os.environ["VRAMSCOPE_FINDING_TITLE"]
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]
    # Drained first: a job that is requeued must not come back to this node.
    commands = [["scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason=vramscope: {title}"]]
    commands += [
        ["scontrol", "requeue", job] for job in find_jobs(os.environ["VRAMSCOPE_FINDING_DEVICE_UUID"])
    ]
    failed = 0
    for command in commands:
        if "--dry-run" in sys.argv[1:]:
            print(shlex.join(command))
        else:
            failed |= subprocess.run(command, check=False, timeout=20).returncode
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
