#!/usr/bin/env python3
"""A check of node-problem-detector: 0 where all GPUs are well, 1 with the worst problem, 2 if unknown."""

import json
import subprocess
import sys

KINDS = ("device_lost", "device_error", "memory_errors", "host_stall")
SEVERITIES = ("high", "critical")
# `max_output_length` of the configuration.
MOST_CHARS = 160


def main() -> int:
    try:
        done = subprocess.run(
            ["vramscope", "--once", "--json"],
            capture_output=True,
            check=False,
            timeout=15,
        )
        findings = json.loads(done.stdout)["findings"]
    except (OSError, ValueError, KeyError, subprocess.TimeoutExpired):
        print("vramscope says nothing about this node")
        return 2
    found = [
        it
        for it in findings
        if it["kind"] in KINDS and it["severity"] in SEVERITIES and it.get("closed_s") is None
    ]
    if not found:
        print("no GPU has a problem")
        return 0
    worst = max(found, key=lambda it: SEVERITIES.index(it["severity"]))
    more = "" if len(found) == 1 else f" (and {len(found) - 1} more)"
    print(worst["title"][: MOST_CHARS - len(more)] + more)
    return 1


if __name__ == "__main__":
    sys.exit(main())
