"""The plug-in of pytest: `@pytest.mark.vram(limit="8GiB")` runs a test on a simulated card and measures it.

pytest loads this file wherever vramscope is installed; everything else is imported when a test has the mark.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .measuring import Measured, Outcome

MARK = (
    "vram(limit, fake=True, devices=1, growth=None): run this test on a simulated card with so much memory "
    '("8GiB") or of this kind ("h100"); growth: per cent by which its peak may exceed the stored one'
)
_PROPERTY = "vramscope"
_WITHOUT_BASELINE = "vramscope-without-baseline"
_MOST_PLACES = 5
_HISTORY = "vramscope.engine.workloads.memory_history"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("vramscope", "memory of tests marked `vram`, on a simulated card")
    group.addoption("--vram-report", action="store_true", help="print what each test needs and what grew")
    group.addoption("--vram-update", action="store_true", help="store what each test needs as the baseline")
    group.addoption("--vram-baseline", metavar="FILE", help="the baseline (default: vram-baseline.json)")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARK)
    baseline = config.getoption("--vram-baseline")
    if baseline and not config.getoption("--vram-update") and not (config.rootpath / baseline).is_file():
        raise pytest.UsageError(f"--vram-baseline {baseline}: no such file; --vram-update writes it")
    if not config.pluginmanager.hasplugin(_HISTORY):  # that of a test's own process
        config.pluginmanager.register(_Cards(config), "vramscope-cards")


class _Cards:
    """Runs each marked test in a process of its own, and reports what they needed."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._baseline_path = Path(
            config.rootpath / (config.getoption("--vram-baseline") or "vram-baseline.json")
        )
        self._baseline: dict[str, Measured] | None = None
        self._measured: dict[str, Measured] = {}
        # Tests whose growth is limited, and was compared with nothing.
        self._without_baseline: set[str] = set()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for place, test in enumerate(items):
            mark = test.get_closest_marker("vram")
            if mark is not None and test.parent is not None:
                items[place] = _TestOnCard.from_parent(
                    test.parent, name=test.name, test=test, mark=mark, cards=self
                )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect what tests needed, also those that workers of pytest-xdist ran."""
        for name, value in report.user_properties:
            if name == _WITHOUT_BASELINE:
                self._without_baseline.add(report.nodeid)
            elif name == _PROPERTY:
                import msgspec

                from .measuring import Measured

                self._measured[report.nodeid] = msgspec.convert(value, Measured)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if hasattr(self._config, "workerinput") or not self._measured:
            return
        from vramscope.engine.errors import VramscopeError
        from vramscope.testing.measuring import describe_measured

        if self._config.getoption("--vram-report"):
            terminalreporter.section("memory of tests (simulated)")
            try:
                baseline = self._read_baseline()
            except VramscopeError as error:
                terminalreporter.write_line(str(error))
                baseline = {}
            for name, measured in sorted(self._measured.items()):
                for line in describe_measured(name, measured, baseline.get(name), _MOST_PLACES):
                    terminalreporter.write_line(line)
        if self._without_baseline:
            terminalreporter.write_line(
                f"vramscope: growth was not compared, {self._baseline_path} has no size of "
                f"{', '.join(sorted(self._without_baseline))} (--vram-update stores it)"
            )
        if self._config.getoption("--vram-update"):
            from .measuring import update_baseline

            try:
                update_baseline(self._baseline_path, self._measured)
            except VramscopeError as error:
                pytest.exit(f"vramscope: {error}", pytest.ExitCode.USAGE_ERROR)
            terminalreporter.write_line(f"vramscope: stored in {self._baseline_path}")

    def run(self, item: pytest.Item, mark: pytest.Mark) -> None:
        """Run a test in its process; fail where that fails, and where the test needs too much."""
        from vramscope.engine.errors import VramscopeError

        try:
            outcome = self._measure(item, mark)
            if outcome.skip_reason is not None:
                pytest.skip(outcome.skip_reason)
            problem = self._judge(item, mark, outcome)
        except VramscopeError as error:
            problem = f"@pytest.mark.vram: {error}"
        else:
            if outcome.measured is not None and not outcome.exit_code:
                import msgspec

                item.user_properties.append((_PROPERTY, msgspec.to_builtins(outcome.measured)))
        if problem is not None:
            pytest.fail(problem, pytrace=False)

    def _measure(self, item: pytest.Item, mark: pytest.Mark) -> "Outcome":
        from vramscope.engine.child_processes import module_command
        from vramscope.engine.extras import require_package

        from .measuring import read_mark, run_on_card

        device = read_mark(mark.args, mark.kwargs)
        require_package("torch")
        command = module_command("pytest", "-q", "--no-header", "--tb=short", "-p", "no:cacheprovider")
        command += ["-p", _HISTORY]
        plugins = self._config.pluginmanager
        if plugins.hasplugin("xdist"):
            command += ["-n", "0"]
        if plugins.hasplugin("_cov"):
            command.append("--no-cov")
        command += ["--rootdir", str(self._config.rootpath)]
        if self._config.inipath is not None:
            command += ["--config-file", str(self._config.inipath)]
        file, _, rest = item.nodeid.partition("::")
        command.append(f"{self._config.rootpath / file}::{rest}")
        # What this process imports, that one does too, where `python -m pytest` added the current folder.
        here = os.getcwd()  # noqa: PTH109 - as in the path
        path = [here] if {"", here} & set(sys.path) else []
        path += filter(None, [os.environ.get("PYTHONPATH")])
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
        return run_on_card(command, variables, device, self._config.rootpath)

    def _judge(self, item: pytest.Item, mark: pytest.Mark, outcome: "Outcome") -> str | None:
        """Return why a test fails; None where it passes."""
        if outcome.exit_code:
            limit = mark.args[0] if mark.args else mark.kwargs.get("limit")
            full = f"did not fit on a simulated card of {limit}"
            head = full if outcome.ooms else "failed in its own process"
            return f"{head}\n\n{outcome.output}"
        if outcome.measured is None:
            return (
                f"{item.nodeid}: marked `vram`, and used no memory of a card: it must put tensors on `cuda`"
            )
        growth: float | None = mark.kwargs.get("growth")
        if growth is None or self._config.getoption("--vram-update"):
            return None
        before = self._read_baseline().get(item.nodeid)
        if before is None:
            item.user_properties.append((_WITHOUT_BASELINE, True))
            return None
        if outcome.measured.reserved_bytes <= before.reserved_bytes * (1 + growth / 100):
            return None
        from vramscope.testing.measuring import describe_measured

        lines = describe_measured(item.nodeid, outcome.measured, before, _MOST_PLACES)
        allowed = f"grew by more than {growth:g} % (accept it with --vram-update)"
        return "\n".join([f"simulated memory {allowed}:", *lines])

    def _read_baseline(self) -> "dict[str, Measured]":
        if self._baseline is None:
            from .measuring import read_baseline

            self._baseline = read_baseline(self._baseline_path)
        return self._baseline


class _TestOnCard(pytest.Item):
    """A marked test: its fixtures and its body run in a process of its own, not here."""

    def __init__(
        self, *, name: str, parent: pytest.Collector, test: pytest.Item, mark: pytest.Mark, cards: _Cards
    ) -> None:
        super().__init__(name, parent)
        self._test = test
        self._mark = mark
        self._cards = cards
        self.own_markers = list(test.own_markers)
        self.keywords.update({it.name: it for it in test.own_markers})

    def runtest(self) -> None:
        self._cards.run(self, self._mark)

    def reportinfo(self) -> tuple[Any, int | None, str]:
        return self._test.reportinfo()
