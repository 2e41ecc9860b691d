"""The text of a scrape, made by prometheus_client.

prometheus_client is an extra of ours: `pip install 'vramscope[prometheus]'`.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ..metrics.collection import collect
from ..metrics.dcgm import collect_dcgm
from ..metrics.families import Metric, Picture

if TYPE_CHECKING:
    from prometheus_client.core import Metric as ClientMetric

    from .server import Render


class PictureCollector:
    """What a registry of prometheus_client asks at each scrape.

    Args:
        has_dcgm_names: Whether to add the names of dcgm-exporter.
    """

    def __init__(self, look: Callable[[], Picture], *, has_dcgm_names: bool = False) -> None:
        self._look = look
        self._has_dcgm_names = has_dcgm_names

    def collect(self) -> "Iterator[ClientMetric]":
        picture = self._look()
        yield from map(_convert, collect(picture))
        if self._has_dcgm_names:
            yield from map(_convert, collect_dcgm(picture))


def make_renderer(look: Callable[[], Picture], *, has_dcgm_names: bool) -> "Render":
    """Return what makes the text of a scrape, in the format that the peer accepts."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder

    registry = CollectorRegistry()
    registry.register(PictureCollector(look, has_dcgm_names=has_dcgm_names))

    def render(accepted: str) -> tuple[bytes, str]:
        encode, kind = choose_encoder(accepted)
        return encode(registry), kind

    return render


def _convert(metric: Metric) -> "ClientMetric":
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        InfoMetricFamily,
        UnknownMetricFamily,
    )

    if metric.kind == "info":
        info = InfoMetricFamily(metric.name, metric.help, labels=metric.labels)
        for values, _ in metric.rows:
            info.add_metric(values, {})
        return info
    family: GaugeMetricFamily | CounterMetricFamily | UnknownMetricFamily
    if metric.kind == "counter":
        family = CounterMetricFamily(metric.name, metric.help, labels=metric.labels, unit=metric.unit)
    elif metric.kind == "gauge":
        family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels, unit=metric.unit)
    else:
        family = UnknownMetricFamily(metric.name, metric.help, labels=metric.labels)
    for values, value in metric.rows:
        family.add_metric(values, value)
    return family
