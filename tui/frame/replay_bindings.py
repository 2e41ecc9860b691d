"""The keys of replays, the same on every screen: `j` and `k` move in time, lists go by arrows and Home."""

from .bindings import APP_BINDINGS, NODE_BINDINGS, bind

REPLAY_BINDINGS = [
    bind(
        "space",
        "pause",
        "replay-pause",
        "pause",
        "Stop at this moment, or play on; at the end, play from the start.",
        shown_as="space",
    ),
    bind(
        "left_square_bracket",
        "replay('step', -1)",
        "replay-frame-back",
        "back",
        "Stop and show the sample before this one.",
        shown_as="[",
        is_priority=True,
    ),
    bind(
        "right_square_bracket",
        "replay('step', 1)",
        "replay-frame",
        "on",
        "Stop and show the next sample.",
        shown_as="]",
        is_priority=True,
    ),
    bind("j", "replay('skip', -10)", "replay-back", "−10s", "Go back 10 s.", shown_as="j", is_priority=True),
    bind("k", "replay('skip', 10)", "replay-on", "+10s", "Go on 10 s.", shown_as="k", is_priority=True),
    bind(
        "g",
        "go_to",
        "replay-go-to",
        "go to",
        "Go to a moment: a time of day, a date, 1h20m, 35%, +10m.",
        shown_as="g",
        is_priority=True,
    ),
    bind(
        "n",
        "replay('mark', 1)",
        "replay-next",
        "next",
        "Go to the next finding or out-of-memory error; where there is none at all, the next step.",
        shown_as="n",
        is_priority=True,
    ),
    bind(
        "N",
        "replay('mark', -1)",
        "replay-before",
        "before",
        "Go to the finding or out-of-memory error before; where there is none at all, the step before.",
        shown_as="N",
        is_priority=True,
    ),
    bind(
        "plus,equals_sign",
        "replay('speed', 1)",
        "replay-faster",
        "faster",
        "Play twice as fast, up to 64 times.",
        shown_as="+",
        is_priority=True,
    ),
    bind(
        "minus",
        "replay('speed', -1)",
        "replay-slower",
        "slower",
        "Play half as fast, down to a quarter.",
        shown_as="-",
        is_priority=True,
    ),
    bind(
        "L",
        "replay('loop')",
        "replay-loop",
        "loop",
        "Begin again at the end, or stop there.",
        shown_as="L",
        is_priority=True,
    ),
    *NODE_BINDINGS,
    *(binding for binding in APP_BINDINGS if binding.action != "pause"),
]
"""Keys of the application that shows a replay."""

_IN_PLAYLIST = [
    bind(
        "right_curly_bracket",
        "replay('turn', 1)",
        "replay-next-run",
        "next config",
        "Go to the next configuration of the sweep that has a trace.",
        shown_as="}",
        is_priority=True,
    ),
    bind(
        "left_curly_bracket",
        "replay('turn', -1)",
        "replay-run-before",
        "config before",
        "Go to the configuration before, to the nearest that has a trace.",
        shown_as="{",
        is_priority=True,
    ),
]

PLAYLIST_BINDINGS = [*_IN_PLAYLIST, *REPLAY_BINDINGS]
"""Keys where several runs play one after the other: `{` and `}` go from one to another."""
