"""`vramscope mcp`, asked by the SDK's own client over stdio, about a real agent with the pretend driver."""

import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests import REPOSITORY
from tests.components import require_package
from vramscope.analyzers.planning.theory.calibration import Calibration
from vramscope.cli.frame.parse import parse
from vramscope.cli.mcp_server import CONTROLLING, LIMIT_BYTES, READING, MemoryTools, make_server
from vramscope.engine.errors import UsageError
from vramscope.engine.model import Evidence, Finding, NodeStatus
from vramscope.engine.settings import Settings

from ...engine.files.snapshots import BASE, event, free, segment, small_snapshot, snapshot, write_snapshot
from ...engine.recording.samples import make_sample, write
from ...pretend_nvml.driver import PretendDriver
from .running import call
from .test_stream import agent

GIB = 1 << 30


@asynccontextmanager
async def client(*flags: str) -> AsyncIterator[Any]:
    """Yield a client of the SDK that has started the server."""
    require_package("mcp")
    from mcp import ClientSession
    from mcp.client.stdio import StdioServerParameters, stdio_client

    program = StdioServerParameters(
        command=sys.executable,
        args=["-m", "vramscope", "mcp", *flags],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    with Path(os.devnull).open("w") as errors:
        async with stdio_client(program, errors) as streams, ClientSession(*streams) as session:
            await session.initialize()
            yield session


async def ask(session: Any, tool: str, **arguments: object) -> dict[str, Any]:
    """Return one answer, checked for what all answers have."""
    result = await session.call_tool(tool, arguments)
    (content,) = result.content
    assert not result.is_error, content.text
    assert len(content.text.encode()) <= LIMIT_BYTES + 1000
    answer: dict[str, Any] = json.loads(content.text)
    assert (answer["schema"], answer["tool"]) == ("vramscope.mcp/1", tool)
    assert abs(answer["answered_s"] - time.time()) < 60
    return answer


async def refusal(session: Any, tool: str, **arguments: object) -> str:
    result = await session.call_tool(tool, arguments)
    assert result.is_error
    text: str = result.content[0].text
    return text


async def test_a_client_reads_state_findings_and_forecasts_of_the_agent(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str], tmp_path: Path
) -> None:
    device = pretend_driver.add_device(used_bytes=79 * GIB)
    device.set_processes([(os.getpid(), 78 * GIB, "compute")])
    snapshot = str(write_snapshot(tmp_path, small_snapshot()))
    write(tmp_path / "a.vscope", [make_sample(tick) for tick in range(3)])
    calibration = tmp_path / "calibration.json"
    correction = Calibration(
        runs=4, offset_bytes=GIB, activation_scale=1.1, plain_error_percent=5.0, held_out_error_percent=3.0
    )
    calibration.write_bytes(msgspec.json.encode(correction))
    with agent():
        async with client() as session:
            tools = {tool.name: tool for tool in (await session.list_tools()).tools}
            assert set(tools) == set(READING)
            assert all(tool.annotations.read_only_hint for tool in tools.values())
            state = await ask(session, "state")
            assert state["result"]["schema"] == "vramscope.status/1"
            assert state["result"]["devices"][0]["memory"]["used_bytes"] == 79 * GIB
            assert state["result"]["agent"]["pid"] > 0
            assert state["data_s"] == state["result"]["time"]
            findings = await ask(session, "findings")
            assert findings["left_out"] == {}
            forecast = await ask(session, "forecast")
            assert [it["device_uuid"] for it in forecast["result"]] == [state["result"]["devices"][0]["uuid"]]
            for finding in findings["result"]:
                explained = await ask(session, "explain", id=finding["finding"]["id"])
                assert explained["result"]["evidence_ids"].keys() == finding["evidence_ids"].keys()
            assert "no such finding" in await refusal(session, "explain", id="nothing")
            inspected = await ask(session, "inspect", file=snapshot)
            assert inspected["result"]["devices"][0]["levels"]["reserved_bytes"] == 40 << 20
            changed = (Path(snapshot).stat().st_mtime, "change of the file")
            assert (inspected["data_s"], inspected["data_is"]) == changed, "its events have no times"
            moment = await ask(session, "inspect", file=snapshot, at="end", top=1)
            whole = await refusal(session, "inspect", file=str(tmp_path / "a.vscope"))
            assert "a recording: name a moment with at, for example peak" in whole
            assert moment["result"]["schema"] == "vramscope.moment/1"
            recording = str(tmp_path / "a.vscope")
            difference = await ask(session, "diff", a=recording, b=recording)
            assert difference["result"]["schema"] == "vramscope.difference/1"
            newest_s = make_sample(2).time_s
            assert (difference["data_s"], difference["data_is"]) == (newest_s, "newest sample")
            first = await ask(session, "inspect", file=recording, at="start", second="end")
            assert (first["data_s"], first["data_is"]) == (newest_s, "moment")
            estimated = await ask(session, "estimate", model="llama2-7b", tp=2, capacity="80GiB")
            own = call(
                "estimate", "--model", "llama2-7b", "--tp", "2", "--capacity", "80GiB", "--json"
            ).lines[0]
            assert estimated["result"] == own, "the object that the verb prints"
            assert estimated["data_s"] is None, "nothing of it was measured"
            experts: dict[str, object] = {
                "pp": 2,
                "ep": 4,
                "etp": 1,
                "cp": 2,
                "sp": True,
                "world_size": 32,
                "global_batch": 64,
            }
            experts |= {"attention": "flash", "schedule": "gpipe", "calibration": str(calibration)}
            adapters = {"precision": "bf16", "lora": 16, "quantize": "nf4", "optimizer": "adam8bit"}
            server = {"serve": True, "gpu": "h100", "utilization": 0.8, "max_seqs": 64, "cache_type": "fp8"}
            formula = {"theory": "megatron", "tp": 2}
            for model, given in (
                ("llama2-7b", adapters),
                ("llama2-7b", server),
                ("mixtral-8x7b", experts),
                ("llama2-7b", formula),
            ):
                words = [
                    f"--{name.replace('_', '-')}" if it is True else f"--{name.replace('_', '-')}={it}"
                    for name, it in given.items()
                ]
                own = call("estimate", "--model", model, *words, "--json").lines[0]
                answer = await ask(session, "estimate", model=model, **given)
                assert answer["result"] == own
            alone = await refusal(session, "estimate", model="llama2-7b", max_seqs=64)
            assert "max_seqs needs serve" in alone
            assert "there is no such file" in await refusal(session, "inspect", file="/nowhere.pickle")
            assert "Unknown tool" in await refusal(session, "advise", pid=1, action="empty_cache")


async def test_a_refusal_names_the_arguments_of_the_tool_and_no_flags(private_environment: Path) -> None:
    cases: list[tuple[dict[str, object], str]] = [
        ({"zero": 7}, "zero 7: expected 0, 1, 2, 3"),
        ({"quantize": "nf4"}, "quantize nf4 freezes the weights; give lora"),
        ({"world_size": 8, "dp": 2}, "world_size does not go with dp: give only one"),
        ({"micro_batches": 0}, "micro_batches 0: expected 1 or more"),
        ({"theory": "megatron", "capacity": "80GiB"}, "capacity does not go with theory megatron"),
        ({"optimizer": "none"}, "optimizer none does not go with model"),
        ({"serve": True, "micro_batch": 4}, "micro_batch does not go with serve"),
        ({"serve": True, "utilization": 7}, "utilization 7.0: expected a number from"),
        ({"serve": True, "seq": 0}, "seq is 0; expected at least 1 token"),
    ]
    async with client() as session:
        for given, words in cases:
            said = await refusal(session, "estimate", model="llama2-7b", **given)
            assert words in said
            assert "--" not in said


async def test_an_argument_that_a_tool_does_not_have_is_refused(private_environment: Path) -> None:
    async with client() as session:
        said = await refusal(session, "estimate", model="llama2-7b", microbatch=4)
        assert "estimate has no argument 'microbatch'; did you mean micro_batch?" in said
        assert "expected no argument" in await refusal(session, "state", node="n1")


async def test_inspect_reads_profiles_of_jax_and_logs_of_servers(
    private_environment: Path, tmp_path: Path
) -> None:
    profile = str(REPOSITORY / "tests" / "engine" / "files" / "jax" / "cpu.prof")
    log = tmp_path / "server.log"
    log.write_text("INFO vllm\nGPU KV cache size: 123,456 tokens\nAvailable KV cache memory: 50.00 GiB\n")
    async with client() as session:
        profiled = await ask(session, "inspect", file=profile, top=1)
        assert profiled["result"]["schema"] == "vramscope.device-profile/1"
        assert profiled["data_is"] == "change of the file"
        started = await ask(session, "inspect", file=str(log))
        assert started["result"]["schema"] == "vramscope.serving-log/1"
        said = await refusal(session, "inspect", file=profile, at="peak")
        assert "a device memory profile of JAX has no moments; at needs a memory snapshot" in said


async def test_estimate_takes_the_arguments_of_the_verb_and_none_that_writes_or_runs_code(
    private_environment: Path,
) -> None:
    async with client() as session:
        (tool,) = [it for it in (await session.list_tools()).tools if it.name == "estimate"]
    properties = tool.input_schema["properties"]
    of_verb = set(vars(parse(["estimate", "--model=gpt2"])))
    assert set(properties) <= of_verb
    assert {"cp", "ep", "etp", "sp", "world_size", "global_batch", "attention", "schedule"} <= set(properties)
    assert not {"batch", "factory", "snapshot", "output", "figure", "input", "config"} & set(properties)
    assert tool.input_schema["required"] == ["model"]
    assert properties["world_size"]["description"] == "all ranks, instead of dp"
    assert properties["attention"]["description"] == "attention kernel (fused, flash, unfused)"
    kinds = {name: properties[name]["anyOf"][0]["type"] for name in ("ep", "utilization", "context")}
    assert kinds == {"ep": "integer", "utilization": "number", "context": "string"}


async def test_control_is_offered_only_where_it_is_allowed(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.add_device()
    with agent():
        async with client("--allow-control") as session:
            tools = {tool.name: tool for tool in (await session.list_tools()).tools}
            assert set(tools) == {*READING, *CONTROLLING}
            assert not tools["advise"].annotations.read_only_hint
            assert "no training process" in await refusal(session, "advise", pid=1, action="empty_cache")
            assert "expected empty_cache" in await refusal(session, "advise", pid=1, action="reboot")


def test_control_is_refused_where_the_settings_are_read_only() -> None:
    outcome = call("mcp", "--allow-control", "--read-only")
    assert (outcome.code, outcome.stdout) == (6, "")
    assert "--read-only forbids that" in outcome.stderr


def test_a_missing_sdk_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "mcp"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp", None)
    outcome = call("mcp")
    assert (outcome.code, outcome.stdout) == (4, "")
    assert "pip install 'vramscope[mcp]'" in outcome.stderr


async def test_a_package_that_an_answer_needs_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, private_environment: Path, tmp_path: Path
) -> None:
    require_package("mcp")
    from mcp.server.mcpserver.exceptions import ToolError

    snapshot = str(write_snapshot(tmp_path, small_snapshot()))
    server = make_server(MemoryTools(Settings()), allows_control=False)
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['numpy'] = None")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(ToolError, match=r"pip install 'vramscope\[figures\]'"):
        await server.call_tool("inspect", {"file": snapshot})


class ToolsOf(MemoryTools):
    """Answers about a state that a test made up."""

    def __init__(self, status: NodeStatus) -> None:
        super().__init__(Settings(), clock=lambda: 1000.0)
        self.status = status

    def _observe(self) -> NodeStatus:
        return self.status


def make_status(findings: int, evidence: int = 3) -> NodeStatus:
    numbers = tuple(Evidence(f"number {at}", at, "bytes") for at in range(evidence))
    found = tuple(
        Finding(f"id{at}", "leak", "n", None, None, "high", "It grows. " * 20, 1.0, 2.0, evidence=numbers)
        for at in range(findings)
    )
    return NodeStatus("vramscope.status/1", 900.0, "n", None, (), found, ())


def test_an_answer_that_would_be_too_long_is_cut_and_says_where() -> None:
    text = ToolsOf(make_status(5000)).findings()
    assert len(text) <= LIMIT_BYTES + 1000
    answer = json.loads(text)
    assert answer["answered"] == "1970-01-01T00:16:40+00:00"
    assert answer["data_s"] == 900.0
    assert answer["left_out"] == {"": 5000 - len(answer["result"])}
    assert len(answer["result"]) >= 16


def test_an_empty_answer_says_what_could_not_be_known() -> None:
    """No finding without an agent is another answer than no finding with one."""
    tools = ToolsOf(msgspec.structs.replace(make_status(0), notes=("no agent runs",)))
    for answer in (tools.findings(), tools.forecast()):
        assert json.loads(answer)["notes"] == ["no agent runs"]


def test_a_forecast_says_which_devices_have_none_and_why() -> None:
    sample = make_sample(3)
    status = msgspec.structs.replace(make_status(0), devices=sample.devices, ranks=sample.ranks)
    answer = json.loads(ToolsOf(status).forecast())
    first, second = (device.label for device in sample.devices)
    assert answer["result"] == []
    assert answer["notes"] == [
        f"unknown, no forecast from allocator data: device {first}",
        f"unknown, no allocator data: device {second}",
    ]


def test_a_snapshot_is_dated_by_its_newest_event_and_two_by_the_later(tmp_path: Path) -> None:
    """A file's last change says when it was copied, not when its memory was measured."""
    files = []
    for name, last_us in (("a", 1_700_000_000_000_000), ("b", 1_700_000_060_000_000)):
        steps = [("alloc", 3), ("free_requested", 1), ("free_completed", 0)]
        events = [event(action, BASE, 512, last_us - age_s * 1_000_000) for action, age_s in steps]
        root = snapshot([segment([free(2 << 20)])], events)
        files.append(write_snapshot(tmp_path, root, name=f"{name}.pickle"))
    tools = ToolsOf(make_status(0))
    one = json.loads(tools.inspect(str(files[0])))
    assert (one["data_s"], one["data_is"]) == (1_700_000_000.0, "newest event")
    both = json.loads(tools.diff(str(files[1]), str(files[0])))
    assert (both["data_s"], both["data_is"]) == (1_700_000_060.0, "newest event")
    moment = json.loads(tools.inspect(str(files[0]), at="#1"))
    assert (moment["data_s"], moment["data_is"]) == (1_699_999_997.0, "moment")


def test_an_agent_that_knows_of_nothing_is_not_said_to_be_missing(private_environment: Path) -> None:
    with agent():
        answer = json.loads(MemoryTools(Settings()).findings())
    assert answer["notes"][-1] == "an agent runs, and knows of no device, process or finding"


def test_a_number_behind_a_finding_is_explained_by_its_id() -> None:
    tools = ToolsOf(make_status(2))
    listed = json.loads(tools.findings())["result"][1]
    assert list(listed["evidence_ids"]) == ["id1:number 0", "id1:number 1", "id1:number 2"]
    explained = json.loads(tools.explain("id1:number 2"))
    assert explained["result"]["evidence"] == {"name": "number 2", "value": 2, "unit": "bytes"}
    with pytest.raises(UsageError, match="no such evidence"):
        tools.explain("id1:nothing")
