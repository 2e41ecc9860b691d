"""A server in one sentence, which gets shorter from its end."""

import pytest
from msgspec.structs import replace

from vramscope.analyzers.serving.load import describe_server, sum_load
from vramscope.engine.model import EngineReading, ServerSample
from vramscope.engine.workloads.serving.server import ServerSetup, SimulatedServer

from .servers import describe_server as read_server

SERVER = ServerSample(
    "vLLM",
    "http://127.0.0.1:8000",
    url="http://127.0.0.1:8000",
    model="Qwen/Qwen3-8B",
    engines=(
        EngineReading("0", 12, 3, 10_000, 0.25, 4_000, 2, 1, prefix_queries=100, prefix_hits=40),
        EngineReading("1", 8, 0, 10_000, 0.75, 1_000, 3, 0, prefix_queries=100, prefix_hits=10),
    ),
)


def test_engines_are_added_and_the_fullest_counts() -> None:
    load = sum_load(SERVER)
    assert load == (20, 3, 0.75, 0.1, 20_000, 5, 1, 0.25, 11)


def test_what_one_engine_does_not_say_is_unknown_of_all() -> None:
    engines = (SERVER.engines[0], replace(SERVER.engines[1], waiting=None, prefix_hits=None))
    load = sum_load(replace(SERVER, engines=engines))
    assert (load.running, load.waiting, load.hit_share) == (20, None, None)


def test_the_sentence_gets_shorter_from_its_end() -> None:
    sentence = describe_server(SERVER)
    assert sentence.fit(280) == (
        "vLLM Qwen/Qwen3-8B · 2 engines · 20 running · 3 waiting · KV 75 % of 20,000 tokens · "
        "10 % cached · 5 preemptions since its start · 1 request refused · "
        "about 11 sequences fill the pool: a warning may come late or not at all · prefix hits 25 % · "
        "http://127.0.0.1:8000"
    )
    assert sentence.fit(60) == "vLLM Qwen/Qwen3-8B · 20 run · 3 wait · KV 75 % · 5 preempted"
    assert sentence.fit(32) == "vLLM · 20 run · 3 wait · KV 75 %"


def test_states_are_said() -> None:
    assert "asleep" in describe_server(replace(SERVER, state="asleep")).fit(200)
    silent = replace(SERVER, state="silent", reason="http://127.0.0.1:8000 cannot be reached")
    assert "silent: http://127.0.0.1:8000 cannot be reached" in describe_server(silent).fit(200)
    starting = ServerSample("vLLM", "process 7", state="starting")
    assert describe_server(starting).fit(80) == "vLLM · starting"


def test_a_simulated_server_says_so() -> None:
    server = SimulatedServer(ServerSetup())
    server.advance(10.0)
    assert "simulated" in describe_server(read_server(server)).fit(200).split(" · ")


@pytest.mark.parametrize(
    ("running", "used", "preemptions", "few"),
    [(8, 0.75, 3, 11), (200, 0.75, 3, None), (2, 0.3, 3, None), (8, 0.75, None, None)],
)
def test_only_a_small_pool_in_use_whose_server_preempts_ends_by_chance(
    running: int, used: float, preemptions: int | None, few: int | None
) -> None:
    engine = replace(SERVER.engines[1], running=running, used_share=used, preemptions=preemptions)
    server = replace(SERVER, engines=(engine,))
    assert sum_load(server).few == few
    assert ("a warning may come late" in describe_server(server).fit(300)) == (few is not None)
