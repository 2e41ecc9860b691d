"""A plug-in of pytest for the process of one test on a simulated card: keeps the history of its memory."""

import os
from collections.abc import Iterator

import pytest

SNAPSHOT_VARIABLE = "VRAMSCOPE_TEST_SNAPSHOT"
"""Names the file that the history is written to."""
SKIPPED_SUFFIX = ".skipped"
"""Ends the name of the file that has the reason why the test was skipped."""
# A longer history loses its beginning.
_MOST_EVENTS = 1_000_000


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    import torch

    torch.cuda.memory._record_memory_history(max_entries=_MOST_EVENTS, stacks="python")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    try:
        yield
    finally:
        import torch

        torch.cuda.memory._dump_snapshot(os.environ[SNAPSHOT_VARIABLE])
        torch.cuda.memory._record_memory_history(enabled=None)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else "skipped"
        path = os.environ[SNAPSHOT_VARIABLE] + SKIPPED_SUFFIX
        with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write(reason.removeprefix("Skipped: "))
