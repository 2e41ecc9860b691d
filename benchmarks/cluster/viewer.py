"""The program as it is, run with a list kept of what it lost and of when it drew.

python -m benchmarks.cluster.viewer COUNTS.json --hosts FILE
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from vramscope.__main__ import main as run_program
from vramscope.engine.cluster.nodes_watch import NodesWatch
from vramscope.tui.fleet.screen import FleetScreen


class Counts:
    """What is counted: moments at which the fleet was drawn; in the end, what was lost of each node."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._drawn_s: list[float] = []
        self._nodes: dict[str, dict[str, Any]] = {}

    def install(self) -> None:
        """Let the program note when it draws and what it missed."""
        show_news, close = FleetScreen.show_news, NodesWatch.close

        def draw(screen: FleetScreen) -> None:
            self._drawn_s.append(time.monotonic())
            show_news(screen)

        def end(watch: NodesWatch) -> None:
            self._note(watch)
            close(watch)

        FleetScreen.show_news = draw  # type: ignore[method-assign,assignment]
        NodesWatch.close = end  # type: ignore[method-assign,assignment]

    def _note(self, watch: NodesWatch) -> None:
        for name, node in watch.nodes.items():
            newest = node.picture.newest
            self._nodes[name] = {
                "connection": newest.connection,
                "last_seq": None if newest.sample is None else newest.sample.seq,
                "dropped": newest.samples_dropped,
            }
        counts = {"drawn_s": self._drawn_s, "nodes": self._nodes}
        self._path.write_text(json.dumps(counts), encoding="utf-8")


if __name__ == "__main__":
    Counts(Path(sys.argv.pop(1))).install()
    sys.exit(run_program())
