"""Shell completion: the scripts parse, and a shell really completes."""

import subprocess

import pytest

from ...components import require
from .running import run

SHELLS = ("bash", "zsh", "fish")


@pytest.fixture(scope="module")
def scripts() -> dict[str, str]:
    return {shell: run("completion", shell).stdout for shell in SHELLS}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_parses(shell: str, scripts: dict[str, str]) -> None:
    program = require(shell)
    done = subprocess.run(
        [program, "-n"], input=scripts[shell], capture_output=True, encoding="utf-8", check=False, timeout=30
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_knows_verbs_and_flags(shell: str, scripts: dict[str, str]) -> None:
    for word in ("agent", "doctor", "replay", "once", "high-contrast"):
        assert word in scripts[shell]


def complete_in_bash(script: str, *words: str) -> list[str]:
    """Return what bash offers for the last word, as when Tab is pressed."""
    quoted = " ".join(f"'{word}'" for word in words)
    ask = (
        f"{script}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}\n"
        'function_name=$(complete -p vramscope | sed "s/.*-F \\([^ ]*\\).*/\\1/")\n'
        '$function_name vramscope "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"\n'
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        [require("bash"), "--norc"], input=ask, capture_output=True, encoding="utf-8", check=True, timeout=30
    )
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("vramscope", "ag"), ["agent"]),
        (("vramscope", "doc"), ["doctor"]),
        (("vramscope", "--onc"), ["--once"]),
        (("vramscope", "--theme", "hi"), ["high-contrast"]),
        (("vramscope", "completion", ""), ["bash", "zsh", "fish"]),
        (("vramscope", "doctor", "--js"), ["--json"]),
    ],
)
def test_bash_completes(words: tuple[str, ...], offered: list[str], scripts: dict[str, str]) -> None:
    assert complete_in_bash(scripts["bash"], *words) == offered


def test_hidden_flags_are_not_offered(scripts: dict[str, str]) -> None:
    for shell in SHELLS:
        assert "leave-with-viewers" not in scripts[shell]


def test_an_unknown_shell_is_refused() -> None:
    outcome = run("completion", "tcsh")
    assert outcome.code == 2
    assert "shell tcsh: expected bash, zsh, fish" in outcome.stderr
