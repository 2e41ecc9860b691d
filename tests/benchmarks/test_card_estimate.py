"""Answers and misses of the benchmark of estimates, on made-up rows."""

from pathlib import Path

from benchmarks.card_estimate import CARDS_GIB, Row, count_answers, list_misses, write_tables


def make_row(model: str, measured: float, answers: dict[int, bool | None]) -> Row:
    """Return a row of 5,000 to 7,000 MiB that gives these answers, and the right one for other cards."""
    right = {card: measured <= card * 1024 for card in CARDS_GIB}
    given = {**right, **answers}
    found = tuple(given[card] for card in CARDS_GIB)
    return Row(model, 32, measured, 4800.0, 4900.0, 5000.0, 5400.0, 7000.0, found)


ROWS = [
    make_row("good_net", 6000.0, {6: None}),
    make_row("needs_more", 7200.0, {}),
    make_row("needs_less", 4000.0, {4: False}),
    make_row("said_to_fit", 6500.0, {6: True}),
]


def test_each_answer_is_right_wrong_or_open() -> None:
    lines = {line[0]: line[1:] for line in count_answers(ROWS)}
    # Card of 4 GiB: one run needs less and was refused; the other three are refused rightly.
    assert lines["4 GiB"] == ["0", "0", "3", "1", "0"]
    # Of 6 GiB: one fits, one was said to fit, one does not fit, and one is open.
    assert lines["6 GiB"] == ["1", "1", "1", "0", "1"]
    assert lines["8 GiB"] == ["4", "0", "0", "0", "0"]


def test_every_run_outside_its_range_or_with_a_wrong_answer_is_listed(tmp_path: Path) -> None:
    misses = {line[0]: line[3:] for line in list_misses(ROWS)}
    assert misses == {
        "needs_more, batch 32": ["above", "-25.0%", "none"],
        "said_to_fit, batch 32": ["in", "-16.9%", "fits into 6 GiB"],
        "needs_less, batch 32": ["below", "+35.0%", "does not fit into 4 GiB"],
    }
    write_tables(ROWS, tmp_path / "misses.md")
    text = (tmp_path / "misses.md").read_text(encoding="utf-8")
    assert "| needs_more, batch 32 | 7,200 | 5,000-7,000 | above | -25.0% | none |" in text
