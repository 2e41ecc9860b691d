"""What a flag reads: the value as the verb gets it, or a sentence with flag, text and what was expected."""

from pathlib import Path

import pytest

from vramscope.cli.frame.parse import parse
from vramscope.engine.errors import UsageError


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        ("inspect --top 3", "top", 3),
        ("leak", "window", 100),
        ("attach 1", "timeout", 10.0),
        ("record -o x --rotate 1GiB", "rotate", 1 << 30),
        ("import x -o y --tick 500ms", "tick", 0.5),
        ("replay x --speed 4x", "speed", 4.0),
        ("sweep . --max-memory 40", "max_memory", 40.0),
        ("heatmap --capacity 80GiB", "capacity", 80.0),
        ("heatmap --figsize 6 3", "figsize", [6.0, 3.0]),
        ("plan --zero 3,0", "zero", (0, 3)),
        ("guard --planned 1KiB,2KiB", "planned", (1024, 2048)),
    ],
)
def test_values_arrive_as_what_they_mean(words: str, name: str, value: object) -> None:
    assert getattr(parse(words.split()), name) == value


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("inspect --top 0", "--top 0: expected a whole number from 1 to 10000"),
        ("inspect --device x", "--devices x: expected a whole number from 0 to 10000"),
        ("profile --max-snapshots 0", "--max-snapshots 0: expected a whole number from 1 to 10,000,000"),
        ("oom --threshold nan", "--threshold nan: expected a number from 0 to 100"),
        ("sweep . --max-memory 0", "--max-memory 0: expected a number from 0.0009 to 1e+06"),
        (
            "attach 1 --timeout soon",
            "--timeout soon: not a duration: 'soon'; expected for example 0.5, 90s, 10m or 2h",
        ),
        ("record -o x --keep 0", "--keep 0: expected a time above zero, for example 1h"),
        (
            "agent --replay-interval x",
            "--interval x: not a duration: 'x'; expected for example 0.5, 90s, 10m or 2h",
        ),
        (
            "seqlen --output a.gif",
            "--figure a.gif: expected a name that ends in .pdf, .png or .svg, or a folder",
        ),
        (
            f"plan --seq {'9' * 50}",
            f"--seq {'9' * 40}: expected a whole number of at least 1 and a few digits",
        ),
    ],
)
def test_what_cannot_be_used_is_said_after_the_flag(words: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(words.split())
    assert caught.value.describe("flag").startswith(sentence)


def test_an_old_spelling_is_named_also_where_its_value_cannot_be_used(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as caught:
        parse(["import", str(tmp_path), "-o", "y", "--tick", "x"])
    assert caught.value.describe("flag").startswith("--interval x: not a duration")
    assert capsys.readouterr().err == "vramscope import: --tick is an old spelling: use --interval\n"
