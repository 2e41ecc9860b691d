"""What a collector of OpenTelemetry gets, decoded from the protobuf that arrived there."""

from collections.abc import Iterator

import msgspec
import pytest

from tests.exporters.otel.collector import Collector, Push
from tests.exporters.prometheus.scraped import make_picture, make_training
from tests.pretend_nvml.driver import PretendDriver
from tests.tui.canned import NODE, make_device, make_finding, make_sample, make_snapshot
from tests.tui.canned_ranks import make_simulated
from tests.vramscope.cli.running import start
from tests.waiting import wait_until
from vramscope.engine.errors import UsageError
from vramscope.engine.model import DeviceActivity, DeviceHardware
from vramscope.engine.units import GIB
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.exporters.metrics.collection import collect
from vramscope.exporters.otel.push import OtlpOptions, Pusher, read_otlp_options


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


def push(collector: Collector, snapshot: Snapshot, age_s: float = 0.5) -> Push:
    options = OtlpOptions(f"{collector.url}/v1/metrics", 60.0)
    pusher = Pusher(options, lambda: make_picture(snapshot, age_s), version="9.9", complain=pytest.fail)
    assert pusher.push()
    return collector.pushes[-1]


def test_hardware_has_the_names_units_and_attributes_of_the_conventions(collector: Collector) -> None:
    hardware = DeviceHardware(driver_version="580.95", ecc_corrected=12, ecc_uncorrected=1)
    activity = DeviceActivity(xgmi_sent_bytes_per_s=2.5e11, xgmi_received_bytes_per_s=0.0)
    device = msgspec.structs.replace(make_device(0), hardware=hardware, activity=activity)
    told = push(collector, make_snapshot(sample=make_sample((device,))))
    memory = device.memory
    assert memory.used_bytes is not None
    assert memory.total_bytes is not None
    assert device.utilization_percent is not None
    expected = {
        "hw.gpu.memory.usage": ("sum", "By", memory.used_bytes),
        "hw.gpu.memory.limit": ("sum", "By", memory.total_bytes),
        "hw.gpu.memory.utilization": ("gauge", "1", memory.used_bytes / memory.total_bytes),
        "hw.gpu.utilization": ("gauge", "1", device.utilization_percent / 100),
        "hw.power": ("gauge", "W", device.power_w),
        "hw.temperature": ("gauge", "Cel", device.temperature_c),
    }
    for name, wanted in expected.items():
        (point,) = told.of(name)
        assert (point.shape, point.unit) == wanted[:2], name
        assert point.value == pytest.approx(wanted[2])
        assert point.attributes["hw.id"] == device.uuid
        assert point.attributes["hw.model"] == device.name
        assert (point.attributes["hw.vendor"], point.attributes["hw.name"]) == ("NVIDIA", "GPU 0")
        assert point.attributes["hw.driver_version"] == "580.95"
    errors = {it.attributes["error.type"]: (it.shape, it.unit, it.value) for it in told.of("hw.errors")}
    assert errors == {
        "corrected": ("monotonic sum", "{error}", 12),
        "uncorrected": ("monotonic sum", "{error}", 1),
    }
    rates = {way: told.of(f"vramscope.device.xgmi_{way}")[0] for way in ("sent", "received")}
    assert [(it.unit, it.value) for it in rates.values()] == [("By/s", 2.5e11), ("By/s", 0)]
    assert told.of("hw.power")[0].attributes["hw.type"] == "gpu"
    assert told.of("hw.gpu.utilization")[0].attributes["hw.gpu.task"] == "general"
    assert told.resource["host.name"] == NODE
    assert told.resource["service.name"] == "vramscope"
    assert not any("node" in it.attributes or "vramscope.status" in it.attributes for it in told.points)


def test_allocator_forecast_and_findings_have_names_that_become_those_of_a_scrape(
    collector: Collector,
) -> None:
    told = push(collector, make_training(), age_s=2.0)
    (allocated,) = told.of("vramscope.rank.allocated", rank="1")
    assert (allocated.unit, allocated.value, allocated.attributes["pid"]) == ("By", 51 * GIB, "4010")
    assert told.of("vramscope.oom.in", rank="1")[0].value == 88.0
    assert told.of("vramscope.oom.probability", rank="1")[0].unit == "1"
    (finding,) = told.of("vramscope.findings")
    assert (finding.value, finding.attributes["kind"]) == (1, "pressure")
    steps = told.of("vramscope.rank.steps", rank="1")[0]
    assert (steps.shape, steps.value) == ("monotonic sum", 1842)
    assert 0 < steps.start_ns < steps.time_ns
    # What a collector's exporter to Prometheus makes of names and units (compatibility specification).
    suffixes = {
        "By": "_bytes",
        "s": "_seconds",
        "1": "_ratio",
        "": "",
        "Hz": "_hertz",
        "By/s": "_bytes_per_second",
    }
    suffixes |= {"Cel": "_celsius", "W": "_watts"}
    scraped = {
        it.name + ("_info" if it.kind == "info" else "") for it in collect(make_picture(make_training()))
    }
    ours = {it.name.replace(".", "_") + suffixes[it.unit] for it in told.points if it.name.startswith("vram")}
    assert ours <= scraped
    assert len(ours) > 20


def test_every_value_of_a_scrape_is_pushed(collector: Collector) -> None:
    """One table feeds both: nothing that Prometheus sees is missing, whatever its name here."""
    snapshot = make_training()
    scraped = sorted(value for it in collect(make_picture(snapshot)) for _, value in it.rows)
    told = push(collector, snapshot)
    computed = ("hw.gpu.memory.utilization", "hw.status")
    pushed = sorted(it.value for it in told.points if it.name not in computed)
    ups = len(told.of("hw.status", hw__state="ok"))
    for _ in range(ups):
        scraped.remove(1.0)  # `vramscope_device_up` is `hw.status` here
    assert pushed == pytest.approx(scraped)


@pytest.mark.parametrize(
    ("state", "kinds", "expected"),
    [
        ("ok", (), "ok"),
        ("lost", (), "failed"),
        ("stale", (), "degraded"),
        ("ok", ("device_error",), "degraded"),
    ],
)
def test_the_status_is_that_of_the_device_and_of_findings_on_its_health(
    collector: Collector, state: str, kinds: tuple[str, ...], expected: str
) -> None:
    device = msgspec.structs.replace(make_device(0), state=state)
    findings = tuple(msgspec.structs.replace(make_finding(0), kind=it) for it in kinds)
    told = push(collector, make_snapshot(sample=make_sample((device,)), findings=findings))
    states = {it.attributes["hw.state"]: it.value for it in told.of("hw.status")}
    assert states == {it: float(it == expected) for it in ("ok", "degraded", "failed")}


def test_an_agent_that_is_silent_says_nothing_of_its_devices(collector: Collector) -> None:
    told = push(collector, make_training(), age_s=60.0)
    assert told.of("vramscope.agent.up")[0].value == 0
    assert not [it for it in told.names if it.startswith("hw.")]


def test_a_modelled_card_is_no_hardware(collector: Collector) -> None:
    devices, ranks = make_simulated()
    sample = msgspec.structs.replace(make_sample(tuple(devices)), ranks=tuple(ranks))
    told = push(collector, make_snapshot(sample=sample))
    assert not [it for it in told.names if it.startswith("hw.")]
    assert {it.attributes["device"] for it in told.of("vramscope.device.used")} == {"sim0", "sim1"}
    assert {it.attributes["kind"] for it in told.of("vramscope.device.info")} == {"simulated"}


def test_a_collector_that_refuses_is_complained_of_once_and_again_when_it_accepts() -> None:
    said: list[str] = []
    with Collector(400, 400, 200) as collector:
        options = OtlpOptions(f"{collector.url}/v1/metrics", 60.0)
        pusher = Pusher(options, lambda: make_picture(make_training()), version="9.9", complain=said.append)
        assert [pusher.push() for _ in range(3)] == [False, False, True]
    assert len(said) == 2
    assert f"metrics do not reach {options.url}" in said[0]
    assert "400" in said[0]
    assert said[1] == f"metrics reach {options.url} again"


@pytest.mark.parametrize(
    ("text", "variables", "expected"),
    [
        ("", {}, "http://localhost:4318/v1/metrics"),
        ("https://c.example.org:4318", {}, "https://c.example.org:4318/v1/metrics"),
        ("http://[::1]:4318/otel/", {}, "http://[::1]:4318/otel/v1/metrics"),
        ("http://127.0.0.1:4318/v1/metrics", {}, "http://127.0.0.1:4318/v1/metrics"),
        ("", {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c:1"}, "https://c:1/v1/metrics"),
        ("", {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "https://c:1/in"}, "https://c:1/in"),
    ],
)
def test_the_address_is_read_as_by_other_programs_of_opentelemetry(
    text: str, variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    options = read_otlp_options(text, is_insecure=False)
    assert (options.url, options.interval_s) == (expected, 60.0)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("collector:4318", "expected the address of a collector"),
        ("http://collector:x", "expected the address of a collector"),
        ("http://collector.example.org:4318", "--insecure"),
        ("https://ada:s3cret@collector.example.org", "OTEL_EXPORTER_OTLP_HEADERS"),
    ],
)
def test_what_cannot_or_must_not_be_pushed_to_is_refused(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as refused:
        read_otlp_options(text, is_insecure=False)
    assert "s3cret" not in str(refused.value)


@pytest.mark.waits
def test_an_agent_pushes_with_the_headers_of_the_environment_until_it_ends(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str], collector: Collector
) -> None:
    pretend_driver.add_device(used_bytes=10 * GIB)
    variables = {
        "OTEL_METRIC_EXPORT_INTERVAL": "100",
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20s3cret",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        "OTEL_RESOURCE_ATTRIBUTES": "k8s.cluster.name=east",
    }
    with start("agent", "--otlp", collector.url, **variables) as agent:
        try:
            assert agent.stderr is not None
            line = agent.stderr.readline()
            assert line == f"vramscope agent: metrics are pushed to {collector.url}/v1/metrics every 0.1 s\n"

            def is_measured() -> bool:
                return bool(collector.pushes and collector.pushes[-1].of("hw.gpu.memory.usage"))

            wait_until(is_measured, what="the memory of the device")
        finally:
            agent.kill()
    told = collector.pushes[-1]
    assert told.of("hw.gpu.memory.usage")[0].value == 10 * GIB
    headers = {name.lower(): text for name, text in told.headers.items()}
    assert (told.path, headers["authorization"]) == ("/v1/metrics", "Bearer s3cret")
    assert told.resource["k8s.cluster.name"] == "east"
