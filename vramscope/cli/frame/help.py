"""What `--help` prints: the overview of the program, the page of a verb, and the list of all flags."""

from argparse import SUPPRESS, Action, ArgumentParser
from collections.abc import Iterable, Mapping
from typing import NamedTuple

# One line for each verb, in the order of the overview; at most 60 characters.
VERB_GROUPS: dict[str, dict[str, str]] = {
    "Watch": {
        "run": "start a job with the probe, so that every view shows it",
        "attach": "add the probe to a Python process that already runs",
        "detach": "remove the probe from a process, which goes on",
        "advise": "ask a training process to free memory after its step",
        "guard": "watch several nodes as one, and keep jobs from OOM",
        "agent": "sample and analyze in the background, for viewers",
        "demo": "watch a small job run out of memory; needs no GPU",
        "doctor": "check this machine: what works, what to fix and how",
    },
    "Understand": {
        "oom": "report the risk of running out of memory, and why",
        "leak": "report memory that grows without end, and where",
        "fragment": "report how fragmented memory is",
        "profile": "report current, peak and average memory",
        "distributed": "report the memory of several nodes at one of them",
        "interactive": "type profile, oom, leak and fragment at a prompt",
        "inspect": "explain a PyTorch memory snapshot or a flight record",
        "diff": "compare two runs: where and when they differ",
        "modules": "show memory by module of the model",
        "phases": "train some steps and show memory by phase",
    },
    "Keep and replay": {
        "record": "record this node into a file",
        "replay": "play recordings and files of other tools",
        "import": "convert files of other tools to a recording",
        "export": "convert a recording to CSV, JSON, Parquet or figures",
    },
    "Script": {
        "exporter": "serve metrics of this node to Prometheus",
        "mcp": "answer assistants that speak MCP, on standard streams",
        "worker": "run the analyzers for an agent",
        "keys": "manage the keys of viewers and agents",
        "completion": "print the completion script of a shell",
        "help": "print the help of a verb, or all flags",
    },
    "Plan": {
        "estimate": "compute the memory of a training run or of a server",
        "calibrate": "correct estimates by what your runs measured",
        "plan": "split a model into pipeline stages, or plan a cluster",
        "sweep": "compare runs of one model in many layouts",
        "heatmap": "draw a sweep: what fits and what does not",
        "seqlen": "show memory by sequence length, and the longest that fits",
    },
}
SUMMARIES: dict[str, str] = {name: line for verbs in VERB_GROUPS.values() for name, line in verbs.items()}
# The most used flags, which the overview lists; `vramscope help flags` lists all.
OVERVIEW_FLAGS = (
    "--once",
    "--json",
    "--connect",
    "--ssh",
    "--slurm",
    "--from-prometheus",
    "--interval",
    "--read-only",
    "--theme",
    "--ascii",
)
# Exit codes of a verb that says nothing else about them.
EXIT_CODES: dict[int | str, str] = {0: "done", 2: "wrong flags, or a file that cannot be read"}
_LEAST_WIDTH = 40
_MOST_WIDTH = 100
# Where the text of a flag begins; a wider flag has its text on the next line.
_TEXT_COLUMN = 24
_OVERVIEW_COLUMN = 27


class Page(NamedTuple):
    """What the help of a verb says besides its sentence and its flags."""

    # Commands, one a line; a line that ends in a backslash goes on. `#` begins a comment.
    examples: str = ""
    # Paragraphs after the flags.
    notes: str = ""
    exit_codes: Mapping[int | str, str] = EXIT_CODES
    # Titles of groups of flags that several verbs have; they are listed last.
    inherited: frozenset[str] = frozenset()


def describe_overview(parser: ArgumentParser, page: Page) -> str:
    """Return the help of the program: its verbs in groups, the most used flags, where to read more."""
    width = _find_width()
    name_width = max(map(len, SUMMARIES))
    flags = {name: action for action in parser._actions for name in action.option_strings}
    parts = [
        *_wrap(parser.description or "", width),
        "",
        f"usage: {parser.usage}",
        "",
        *_indent(page.examples),
        "",
    ]
    for title, verbs in VERB_GROUPS.items():
        parts += [title, *(f"  {name:{name_width}}  {line}" for name, line in verbs.items()), ""]
    shown = (flags[name] for name in OVERVIEW_FLAGS)
    parts += ["Flags", *_describe_flags(shown, width, column=_OVERVIEW_COLUMN), "", page.notes]
    return "\n".join(parts) + "\n"


def describe_verb(parser: ArgumentParser, page: Page) -> str:
    """Return the help of a verb: a sentence, the usage, examples, flags in groups, exit codes."""
    width = _find_width()
    parts = [
        *_wrap(parser.description or "", width),
        "",
        *_wrap(word_usage(parser), width, "usage: ", "       "),
    ]
    if page.examples:
        parts += ["", "examples:", *_indent(page.examples)]
    parts += _describe_groups(parser, page, width)
    for paragraph in page.notes.split("\n\n") if page.notes else ():
        parts += ["", *_wrap(paragraph, width)]
    parts += ["", *_describe_exit_codes(page.exit_codes, width)]
    return "\n".join(parts) + "\n"


def describe_all_flags(parser: ArgumentParser, page: Page, verbs: Mapping[str, ArgumentParser]) -> str:
    """Return all flags of the program in their groups, then by name which verbs have which."""
    width = _find_width()
    head = "Flags of the live view, of --once and of --json, then the flags of all verbs by name."
    parts = [*_wrap(head, width), *_describe_groups(parser, page, width)]
    owners: dict[str, list[str]] = {}
    for verb in (name for name in SUMMARIES if name in verbs):
        for action in verbs[verb]._actions:
            if action.help != SUPPRESS and action.option_strings and action.dest != "help":
                owners.setdefault(max(action.option_strings, key=len), []).append(verb)
    parts += ["", "flags of verbs: `vramscope help VERB` explains them"]
    for flag in sorted(owners):
        names = "all verbs" if len(owners[flag]) == len(verbs) else ", ".join(owners[flag])
        parts += _describe_row(flag, names, width)
    parts += ["", *_describe_exit_codes(page.exit_codes, width)]
    parts += ["", *_wrap(parser.epilog or "", width)]
    return "\n".join(parts) + "\n"


def _find_width() -> int:
    from shutil import get_terminal_size

    return max(_LEAST_WIDTH, min(_MOST_WIDTH, get_terminal_size().columns))


def _wrap(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    from textwrap import wrap

    return wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _indent(text: str) -> list[str]:
    return [f"  {line}" for line in text.splitlines()]


def word_usage(parser: ArgumentParser) -> str:
    """Return the usage of the verb: its own, or what a command line cannot do without, in one line."""
    if parser.usage:
        return parser.usage
    choices = [group for group in parser._mutually_exclusive_groups if group.required]
    either = {id(action) for group in choices for action in group._group_actions}
    words = [_shape(action) for action in parser._actions if not action.option_strings]
    words += [
        f"{action.option_strings[0]} {_shape(action)}"
        for action in parser._actions
        if action.option_strings and action.required and id(action) not in either
    ]
    for group in choices:
        words.append(f"({' | '.join(invoke(action).rpartition(', ')[2] for action in group._group_actions)})")
    return " ".join([parser.prog, *words, "[flags]"])


def list_groups(parser: ArgumentParser, page: Page) -> list[tuple[str, list[Action]]]:
    """Return the flags under their titles: those of the verb, then those that other verbs have too."""
    shown = [(_name_group(group.title), group._group_actions) for group in parser._action_groups]
    own = [it for it in shown if it[0] not in page.inherited]
    inherited = [it for it in shown if it[0] in page.inherited]
    seen = (
        (title, [it for it in actions if it.help != SUPPRESS and not isinstance(it.choices, dict)])
        for title, actions in (*own, *inherited)
    )
    return [(title, actions) for title, actions in seen if actions]


def _describe_groups(parser: ArgumentParser, page: Page, width: int) -> list[str]:
    lines: list[str] = []
    for title, actions in list_groups(parser, page):
        lines += ["", f"{title}:", *_describe_flags(actions, width)]
    return lines


def _name_group(title: str | None) -> str:
    return {"positional arguments": "arguments", "options": "flags"}.get(title or "", title or "")


def _describe_flags(actions: Iterable[Action], width: int, *, column: int = _TEXT_COLUMN) -> list[str]:
    lines: list[str] = []
    for action in actions:
        lines += _describe_row(invoke(action), explain(action), width, column)
    return lines


def explain(action: Action) -> str:
    return (action.help or "") % vars(action)


def _describe_row(name: str, text: str, width: int, column: int = _TEXT_COLUMN) -> list[str]:
    indent = " " * column
    lines = _wrap(text, width, indent, indent)
    if not lines:
        return [f"  {name}"]
    if len(name) + 4 > column:
        return [f"  {name}", *lines]
    return [f"  {name}".ljust(column) + lines[0][column:], *lines[1:]]


def invoke(action: Action) -> str:
    """Return a flag as it is written, with its value: `-o, --output FILE`."""
    names = ", ".join(sorted(action.option_strings, key=len))
    if not names or action.nargs == 0:
        return names or _shape(action)
    return f"{names}[={_name_value(action)}]" if action.nargs == "?" else f"{names} {_shape(action)}"


def _shape(action: Action) -> str:
    value = _name_value(action)
    if action.nargs == "?":
        return f"[{value}]"
    if action.nargs == "*":
        return f"[{value}...]"
    return f"{value}..." if action.nargs == "+" else value


def _name_value(action: Action) -> str:
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    if action.metavar is None and action.choices is not None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return action.metavar or action.dest.upper()


def _describe_exit_codes(codes: Mapping[int | str, str], width: int) -> list[str]:
    lines = ["exit codes:"]
    number_width = max(len(str(code)) for code in codes)
    for code, text in codes.items():
        lines += _wrap(text, width, f"  {code!s:>{number_width}}  ", " " * (number_width + 4))
    return lines
