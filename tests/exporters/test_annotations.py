"""Annotations of GitHub Actions: one command a line, whatever is in a name, at the file of the checkout."""

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from tests.analyzers.diff.runs import summarize, train
from vramscope.analyzers.diff import Comparison, compare_runs
from vramscope.analyzers.planning.steps import StepEstimate
from vramscope.exporters.annotations import Annotation, render_annotations
from vramscope.exporters.diff.text import annotate_difference
from vramscope.exporters.estimates import annotate_step

ROOT = Path("/checkout")
COMMAND = re.compile(r"::(error|warning|notice) [a-z]+=[^:]*::.*")


def render(*annotations: Annotation) -> list[str]:
    return render_annotations(annotations, ROOT).splitlines()


def test_a_place_in_the_checkout_is_named_as_the_checkout_names_it() -> None:
    assert render(Annotation("error", "grew", "by 1 GiB", "/checkout/src/train.py", 12)) == [
        "::error file=src/train.py,line=12,title=grew::by 1 GiB"
    ]
    assert render(Annotation("notice", "grew", "by 1 GiB", "/usr/lib/x.py", 3)) == [
        "::notice file=/usr/lib/x.py,line=3,title=grew::by 1 GiB"
    ]


def test_no_text_begins_a_command_of_its_own() -> None:
    hostile = "100 %, a:b\r\n::stop-commands::x"
    (line,) = render(Annotation("warning", hostile, hostile, f"/checkout/{hostile}", 1))
    assert COMMAND.fullmatch(line)
    assert line.endswith("::100 %25, a:b%0D%0A::stop-commands::x")
    assert "title=100 %25%2C a%3Ab%0D%0A%3A%3Astop-commands%3A%3Ax" in line


def compare(growth_gib: float) -> Comparison:
    a = summarize(train(ranks=range(2), steps=range(1, 31)))
    b = summarize(
        train(lambda rank, step: 10 + growth_gib * rank * (step > 15), ranks=range(2), steps=range(1, 31))
    )
    return compare_runs(a, b, files=("a.vscope", "b.vscope"), formats=("x", "y"))


def test_what_grew_is_a_warning_and_an_error_where_it_is_more_than_allowed() -> None:
    for is_crossed, level in ((False, "warning"), (True, "error")):
        verdict, grown = annotate_difference(compare(2.0), is_crossed=is_crossed)
        assert (verdict.level, verdict.title) == (level, "b.vscope against a.vscope")
        assert (grown.level, grown.title) == (level, "rank 1: allocated peak grew by 2.0 GiB")
        assert grown.message == "10.0 GiB in a.vscope, 12.0 GiB in b.vscope, from step 16 on"


def test_what_shrank_or_stayed_is_a_notice() -> None:
    for growth_gib in (-2.0, 0.0):
        (verdict,) = annotate_difference(compare(growth_gib), is_crossed=False)
        assert verdict.level == "notice"


MIB = 1 << 20
FRAMES = [["/checkout/model.py", 12, "forward"], ["/checkout/train.py", 3, "main"]]
LARGE = {"frames": FRAMES, "size_bytes": 60 * MIB}
OUTSIDE = {"frames": [], "size_bytes": 30 * MIB}
SMALL = {"frames": [["/checkout/train.py", 4, "step"]], "size_bytes": 2 * MIB}


def estimate(capacity: Mapping[str, object] | None) -> StepEstimate:
    sizes = ("live_peak", "allocated_peak", "reserved_peak", "card_least", "card_likely", "card_most")
    return msgspec.convert(
        {
            **dict.fromkeys((f"{name}_bytes" for name in sizes), 100 * MIB),
            **{key: [] for key in ("outside", "phases", "kinds", "modules")},
            **{"factory": "train:make", "torch": "2", "storage": "fake", "traced_s": 1.0},
            **{"peak_phase": "backward", "peak_module": "", "stacks": [LARGE, OUTSIDE, SMALL]},
            "capacity": capacity,
        },
        StepEstimate,
    )


@pytest.mark.parametrize(("does_fit", "level"), [(True, "notice"), (None, "warning"), (False, "error")])
def test_a_step_says_whether_it_fits_at_the_line_that_does_not(does_fit: bool | None, level: str) -> None:
    check = {
        **{"capacity_bytes": 90 * MIB, "outside_least_bytes": MIB, "outside_most_bytes": MIB},
        **{"does_fit": does_fit, "reserved_peak_bytes": 80 * MIB},
        **({} if does_fit is not False else {"failed_bytes": MIB, "failed_frames": FRAMES}),
    }
    verdict, large = render(*annotate_step(estimate(check)))
    place = "file=model.py,line=12," if does_fit is False else ""
    assert verdict.startswith(f"::{level} {place}title=train%3Amake%3A 100 MiB estimated::")
    assert "estimated, no GPU was used" in verdict
    # The line that holds most; a small one, and what no line of the user's holds, have none.
    assert large == (
        "::notice file=model.py,line=12,title=60 MiB at the peak%2C estimated::60 %25 of what is live at the "
        "peak was allocated here, in forward"
    )


def test_an_estimate_without_a_capacity_is_a_notice() -> None:
    assert [it.level for it in annotate_step(estimate(None))] == ["notice", "notice"]
