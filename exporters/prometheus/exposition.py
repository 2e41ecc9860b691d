"""The families as prometheus_client's objects, of which it makes the text that a scrape asks for.

prometheus_client is an extra of ours: `pip install 'vramscope[prometheus]'`.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from ...engine.model import RankSample
from . import agent_families, device_families, rank_families, risk_families
from .family import DEVICE_LABELS, RANK_LABELS, Family, Subject, label_text
from .picture import Picture

if TYPE_CHECKING:
    from prometheus_client.core import Metric

NODE_LABELS = ("node",)
Row = tuple[tuple[str, ...], float | None]
"""Values of the labels, and the figure; None where it is unmeasured."""


class PictureCollector:
    """What a registry of prometheus_client asks at each scrape.

    Args:
        look: Returns what is known now.
    """

    def __init__(self, look: Callable[[], Picture]) -> None:
        self._look = look

    def collect(self) -> "Iterator[Metric]":
        """Yield the families that have a series."""
        return collect(self._look())


def collect(picture: Picture) -> "Iterator[Metric]":
    """Yield the families that have a series; what is unmeasured or too old has none."""
    yield from _collect_agent(picture)
    yield from _collect_devices(picture)
    yield from _collect_ranks(picture)
    yield from _collect_risks(picture)


def _collect_agent(picture: Picture) -> "Iterator[Metric]":
    node = (label_text(picture.node),)
    yield from _read_all(agent_families.AGENT_GAUGES, NODE_LABELS, [(node, picture)])
    hub = picture.snapshot.hub
    sample = picture.sample
    if hub is not None and picture.is_fresh:
        name = agent_families.INFO_NAME
        text = agent_families.INFO_HELP
        yield from _info(name, text, (*NODE_LABELS, "version"), [(*node, label_text(hub.version))])
        yield from _read_all(agent_families.HUB_FAMILIES, NODE_LABELS, [(node, hub)])
    if sample is not None and sample.host is not None and picture.is_fresh:
        yield from _read_all(agent_families.HOST_FAMILIES, NODE_LABELS, [(node, sample.host)])


def _collect_devices(picture: Picture) -> "Iterator[Metric]":
    labelled = [(picture.label_device(it.uuid), it) for it in picture.devices]
    infos = [(*labels, label_text(it.name), it.kind, label_text(it.parent_uuid)) for labels, it in labelled]
    info_labels = (*DEVICE_LABELS, *device_families.INFO_LABELS)
    yield from _info(device_families.INFO_NAME, device_families.INFO_HELP, info_labels, infos)
    ups: list[Row] = [(labels, float(picture.is_up(it))) for labels, it in labelled]
    yield from _rows(device_families.UP_NAME, "gauge", "", device_families.UP_HELP, DEVICE_LABELS, ups)
    ages: list[Row] = [(labels, picture.age_of(it)) for labels, it in labelled]
    yield from _rows(
        device_families.AGE_NAME, "gauge", "seconds", device_families.AGE_HELP, DEVICE_LABELS, ages
    )
    rows = device_families.read_rows(picture)
    answering = [(labels, it) for labels, it in labelled if it.uuid in rows]
    yield from _read_all(
        device_families.ROW_FAMILIES, DEVICE_LABELS, [(labels, rows[it.uuid]) for labels, it in answering]
    )
    yield from _read_all([device_families.FREE], DEVICE_LABELS, answering)


def _collect_ranks(picture: Picture) -> "Iterator[Metric]":
    everybody: list[tuple[tuple[str, ...], RankSample]] = [
        (picture.label_rank(it), it) for it in picture.ranks
    ]
    present = [(labels, it) for labels, it in everybody if it.state != "ended"]
    infos = [(*labels, *map(label_text, rank_families.read_info(it))) for labels, it in present]
    info_labels = (*RANK_LABELS, *rank_families.INFO_LABELS)
    yield from _info(rank_families.INFO_NAME, rank_families.INFO_HELP, info_labels, infos)
    yield from _read_all(rank_families.GAUGES, RANK_LABELS, present)
    yield from _read_all(rank_families.COUNTERS, RANK_LABELS, everybody)


def _collect_risks(picture: Picture) -> "Iterator[Metric]":
    labelled = [(picture.label_assessment(it), it) for it in risk_families.list_assessments(picture)]
    levels: list[Row] = [
        ((*labels, level), float(it.level == level))
        for labels, it in labelled
        for level in risk_families.LEVELS
    ]
    name = risk_families.LEVEL_NAME
    text = risk_families.LEVEL_HELP
    yield from _rows(name, "gauge", "", text, (*RANK_LABELS, "level"), levels)
    yield from _read_all(risk_families.GAUGES, RANK_LABELS, labelled)
    for family in risk_families.TIMES:
        times: list[Row] = [
            (labels, risk_families.find_left_s(picture, it, seconds))
            for labels, it in labelled
            if (seconds := family.read(it)) is not None
        ]
        yield from _rows(family.name, family.kind, family.unit, family.help, RANK_LABELS, times)
    name = risk_families.FINDINGS_NAME
    text = risk_families.FINDINGS_HELP
    counted: list[Row] = list(risk_families.count_findings(picture).items())
    yield from _rows(name, "gauge", "", text, (*DEVICE_LABELS, *risk_families.FINDINGS_LABELS), counted)


def _read_all(
    families: Iterable[Family[Subject]],
    labels: tuple[str, ...],
    subjects: Iterable[tuple[tuple[str, ...], Subject]],
) -> "Iterator[Metric]":
    subjects = list(subjects)
    for it in families:
        rows = ((values, it.read(subject)) for values, subject in subjects)
        yield from _rows(it.name, it.kind, it.unit, it.help, labels, rows)


def _rows(
    name: str, kind: str, unit: str, text: str, labels: tuple[str, ...], rows: Iterable[Row]
) -> "Iterator[Metric]":
    """Yield one family, if it has a series."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    make = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
    family = make(name, text, labels=labels, unit=unit)
    for values, figure in rows:
        if figure is not None and math.isfinite(figure) and (kind != "counter" or figure >= 0):
            family.add_metric(values, figure)
    if family.samples:
        yield family


def _info(
    name: str, text: str, labels: tuple[str, ...], rows: Iterable[tuple[str, ...]]
) -> "Iterator[Metric]":
    from prometheus_client.core import InfoMetricFamily

    family = InfoMetricFamily(name, text, labels=labels)
    for values in rows:
        family.add_metric(values, {})
    if family.samples:
        yield family
