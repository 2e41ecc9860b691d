"""What a scrape told, as series by name and labels."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder, generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.tui.assessed_cases import make_assessment
from tests.tui.canned import NODE, make_finding, make_sample, make_snapshot
from tests.tui.canned_ranks import make_job
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.exporters.metrics.families import Picture
from vramscope.exporters.prometheus.text import PictureCollector

OPENMETRICS = "application/openmetrics-text;version=1.0.0"


class Series:
    """Series of one scrape."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._found = [sample for family in families for sample in family.samples]
        self.names = {sample.name for sample in self._found}

    def of(self, name: str, **labels: str) -> list[float]:
        """Return the figures of the series of a name that have these labels."""
        return [
            sample.value
            for sample in self._found
            if sample.name == name and labels.items() <= sample.labels.items()
        ]

    def labels(self, name: str) -> list[dict[str, str]]:
        return [dict(sample.labels) for sample in self._found if sample.name == name]


def render(picture: Picture) -> str:
    """Return the text that a scrape reads who asks for no other."""
    registry = CollectorRegistry()
    registry.register(PictureCollector(lambda: picture))
    return generate_latest(registry).decode()


def scrape(picture: Picture) -> Series:
    """Return what a scrape would read, by way of its text."""
    registry = CollectorRegistry()
    registry.register(PictureCollector(lambda: picture))
    encode, _ = choose_encoder(OPENMETRICS)
    return read_scrape(encode(registry).decode())


def read_scrape(text: str) -> Series:
    """Return the series of an OpenMetrics text."""
    return Series(text_string_to_metric_families(text))  # type: ignore[no-untyped-call]


def make_training(**changes: object) -> Snapshot:
    """Return an agent with two ranks on two devices, a forecast for the second and a finding on the first."""
    devices, ranks = make_job(2)
    sample = make_sample(tuple(devices))
    told = {"ranks": tuple(ranks), **changes}
    sample = type(sample)(**{**{name: getattr(sample, name) for name in sample.__struct_fields__}, **told})
    risky = make_assessment(
        ranks[1], level="high", probability=0.4, oom_in_s=90.0, oom_in_low_s=60.0, oom_in_high_s=200.0
    )
    return make_snapshot(
        sample=sample, assessments=(make_assessment(ranks[0]), risky), findings=(make_finding(0),)
    )


def make_picture(snapshot: Snapshot, age_s: float = 0.5) -> Picture:
    return Picture(NODE, snapshot, age_s)
