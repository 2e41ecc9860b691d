"""The benchmark of architectures: what is looked for when a model fails, and what the tables say of it."""

from importlib.util import find_spec

import pytest

from benchmarks.architectures.__main__ import MODELS, describe, judge, read_models
from benchmarks.architectures.table import Outcome, format_tables
from benchmarks.measure.tables import replace_table
from vramscope.analyzers.planning.steps import StepTrace, TraceResult

SMALL: tuple[str, ...] = ("small", "main")
DEEP: tuple[str, ...] = ("deep", "main")
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch")


def make_result(peak_bytes: int) -> TraceResult:
    """Return a trace of two steps that allocate a parameter, and a block in the second."""
    trace = StepTrace(
        layers=None,
        sizes=(512, 512),
        streams=(0, 0),
        phases=(0, 1),
        modules=(0, 0),
        stacks=(0, 0),
        events=(1, 2, -2),
        marks=((0, 0, 0),),
        module_names=("",),
        module_types=("",),
        stack_frames=((),),
        step_begins=(1, 1, 3),
        backward_begins=(),
        recompute_ends=(),
        allocated_peak_bytes=peak_bytes,
    )
    return TraceResult(traces=(trace,), torch="2")


class Models:
    """Answers of the workers for one model, and what was asked of them."""

    def __init__(
        self, answers: dict[tuple[tuple[str, ...], bool], TraceResult], found: tuple[str, ...] | None
    ) -> None:
        self._answers = answers
        self._found = found
        self.asked: list[tuple[tuple[str, ...], bool]] = []

    def trace(self, name: str, attempt: tuple[str, ...], *, is_fake: bool) -> TraceResult:
        self.asked.append((attempt, is_fake))
        return self._answers[attempt, is_fake]

    def find_attempt(self, name: str) -> tuple[tuple[str, ...] | None, str]:
        return self._found, "ValueError: no backbone"

    def judge(self) -> Outcome:
        return judge("transformers/net", "vision", SMALL, self.trace, self.find_attempt)


def fail(text: str, *, doubt: bool = False) -> TraceResult:
    return TraceResult(error=(text,), doubt=text if doubt else None)


@needs_torch
def test_a_model_is_estimated_and_compared_with_storage() -> None:
    models = Models({(SMALL, True): make_result(1_000_000), (SMALL, False): make_result(1_020_000)}, None)
    outcome = models.judge()
    assert (outcome.is_estimated, outcome.comparison, outcome.fallback) == (True, "-2.0 %", None)


@needs_torch
def test_what_the_host_refuses_too_is_left_out_and_what_only_we_refuse_is_stopped() -> None:
    answers = {(SMALL, True): fail("no", doubt=True), (SMALL, False): fail("no kernel\nfor it")}
    left_out = Models(answers, None).judge()
    assert left_out.left_out == "ValueError: no backbone"
    stopped = Models(answers, SMALL).judge()
    assert (stopped.stopped, stopped.left_out, stopped.is_estimated) == ("no kernel\nfor it", None, False)
    assert describe(stopped) == "transformers/net: stopped: no kernel for it"


@needs_torch
def test_another_size_is_traced_if_the_first_does_not_train() -> None:
    answers = {
        (SMALL, True): fail("no"),
        (DEEP, True): make_result(512),
        (DEEP, False): make_result(512),
    }
    models = Models(answers, DEEP)
    outcome = models.judge()
    assert (outcome.attempt, outcome.comparison) == (DEEP, "=")
    assert models.asked == [(SMALL, True), (DEEP, True), (DEEP, False)]


@needs_torch
def test_an_estimate_of_what_no_host_runs_does_not_count() -> None:
    answers = {(SMALL, True): make_result(512), (SMALL, False): fail("index out of range")}
    assert Models(answers, None).judge().left_out is not None


@needs_torch
def test_a_large_peak_is_not_compared() -> None:
    models = Models({(SMALL, True): make_result(2 << 30)}, None)
    outcome = models.judge()
    assert (outcome.is_estimated, outcome.comparison, models.asked) == (True, "runs", [(SMALL, True)])


@needs_torch
def test_real_tensors_are_named_with_their_reason() -> None:
    answers = {(SMALL, True): fail("shape of x[x > 0]", doubt=True), (SMALL, False): make_result(512)}
    outcome = Models(answers, SMALL).judge()
    assert (outcome.is_estimated, outcome.fallback) == (True, "shape of x[x > 0]")


OUTCOMES = [
    Outcome(name="transformers/a", kind="vision", peak_bytes=1_000_000, real_peak_bytes=1_000_000),
    Outcome(
        name="transformers/b", kind="vision", peak_bytes=1_010_000, real_peak_bytes=1_000_000, readings=2
    ),
    Outcome(name="transformers/c", kind="vision", stopped="no kernel | for it\nat all"),
    Outcome(name="transformers/d", kind="vision", left_out="ValueError: no backbone"),
    Outcome(
        name="timm/e",
        kind="timm",
        peak_bytes=512,
        real_peak_bytes=512,
        fallback="/v/lib/site-packages/timm/e.py:3 reads",
    ),
]


def test_tables_count_every_kind_and_list_what_is_not_as_it_should_be() -> None:
    text = format_tables(OUTCOMES, {"torch": "2.13"})
    lines = text.splitlines()
    assert "| vision | 3 | 2 | 2 | 1 of 2 | 1 | 1 |" in lines
    assert "| timm | 1 | 1 | 0 | 0 of 0 | 0 | 0 |" in lines
    assert "| all | 4 | 3 | 2 | 1 of 2 | 1 | 1 |" in lines
    assert "| `transformers/c` | no kernel \\| for it at all |" in lines
    assert "| `timm/e` | timm/e.py:3 reads |" in lines
    assert "| `transformers/b` | +1.0 % (1,010,000 of 1,000,000 bytes); 2 lines read values |" in lines
    assert "| ValueError: no backbone | `d` |" in lines


def test_only_the_tables_of_the_page_are_replaced() -> None:
    begin, end = "<!-- table: run this -->", "<!-- table ends -->"
    page = f"above\n{begin}\nold\n{end}\nbelow\n"
    assert replace_table(page, "run this", "new") == f"above\n{begin}\n\nnew\n\n{end}\nbelow\n"
    with pytest.raises(ValueError, match="no place"):
        replace_table("above\n", "run this", "new")


def test_the_list_names_each_model_once_under_its_kind() -> None:
    assert read_models("# why\n\n[vision]\nvit beit\n\n[timm]\nvit_tiny\n") == {
        "transformers/vit": "vision",
        "transformers/beit": "vision",
        "timm/vit_tiny": "timm",
    }
    text = MODELS.read_text(encoding="utf-8")
    words = [word for line in text.splitlines() if line[:1] not in "#[" for word in line.split()]
    assert len(read_models(text)) == len(words) >= 260
