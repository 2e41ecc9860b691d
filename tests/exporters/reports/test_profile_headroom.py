"""What would fit, in the report of `vramscope profile` and in its text."""

import msgspec

from vramscope.engine.model import Assessment, HeadroomEstimate
from vramscope.exporters.json_lines import encode_report
from vramscope.exporters.reports.profile import build_profile
from vramscope.exporters.reports.text import describe_report

from .logs import DRIVER, GIB, MIB, make_device, make_log, make_sample

ESTIMATE = HeadroomEstimate(
    unit="tokens",
    limit_bytes=78 * GIB,
    steps=40,
    sizes=6,
    largest_seen=8192,
    confidence=0.9,
    per_unit_bytes=2.5 * MIB,
    base_bytes=20 * GIB,
    expected_size=22_000,
    largest_size=20_480,
    too_large_size=24_000,
    is_extrapolated=True,
)
REFUSED = HeadroomEstimate("samples", 78 * GIB, 40, 1, 8, 0.9, reason="one size of steps seen")


def test_the_report_tells_what_would_fit_by_device_and_says_that_it_is_an_estimate() -> None:
    log = make_log([make_sample(t, make_device(30 * GIB), make_device(30 * GIB, index=1)) for t in range(3)])
    word = Assessment("node", "GPU-1", "1", 2.0, "low", "", 7, 1.0, rank=3, headroom=(ESTIMATE, REFUSED))
    log.take([], [word, msgspec.structs.replace(word, device_uuid="GPU-0", pid=8, headroom=())])
    report = build_profile(log, DRIVER)
    told = msgspec.json.decode(encode_report(report))["headroom"]
    assert list(told) == ["1"]
    (process,) = told["1"]
    assert (process["pid"], process["rank"]) == (7, 3)
    by_tokens, by_samples = process["estimates"]
    assert (by_tokens["largest_size"], by_tokens["per_unit_bytes"]) == (20_480, 2.5 * MIB)
    assert (by_samples["largest_size"], by_samples["reason"]) == (None, "one size of steps seen")
    text = " ".join(describe_report(report, 80).split())
    assert (
        "1: rank 3: Estimate: 2.50 MiB a token over 20.0 GiB; 20,480 tokens would fit 78.0 GiB with 90 % "
        "confidence, 22,000 as likely as not, 24,000 would not; largest seen: 8,192"
    ) in text
    assert "1: rank 3: Headroom in samples is unknown: one size of steps seen" in text
