"""Start-up logs of servers: what is read of each, and files that are none."""

import gzip
from pathlib import Path

import pytest

from vramscope.engine.errors import InputFileError
from vramscope.engine.files.serving_log import read_serving_log, recognize_serving_log
from vramscope.engine.units import GIB, MIB

ENGINE = (
    "INFO core.py:105] Initializing a V1 LLM engine (v0.19.0) with config: model='org/model', "
    "max_seq_len=16384, tensor_parallel_size=2, pipeline_parallel_size=1\n"
)
RANKS = (
    "(Worker_TP0 pid=22) INFO gpu_model_runner.py] Model loading took 7.51 GiB memory and 9.5 seconds\n"
    "(Worker_TP1 pid=23) INFO gpu_model_runner.py] Model loading took 7.52 GiB memory and 9.6 seconds\n"
    "(Worker_TP0 pid=22) DEBUG Memory profiling takes 8 seconds. Total non KV cache memory: 11.47GiB; torch "
    "peak memory increase: 1.89GiB; non-torch forward increase memory: 2.07GiB; weights memory: 7.51GiB.\n"
    "(Worker_TP0 pid=22) INFO Available KV cache memory: 63.76 GiB\n"
    "(Worker_TP1 pid=23) INFO Available KV cache memory: 63.75 GiB\n"
    "(Worker_TP0 pid=22) DEBUG worker requested memory: 75.23GiB\n"
)
ROOM = (
    "(EngineCore pid=9) INFO GPU KV cache size: 1,044,688 tokens\n"
    "(EngineCore pid=9) INFO Maximum concurrency for 16,384 tokens per request: 63.76x\n"
)


def _write(folder: Path, text: str) -> Path:
    path = folder / "server.log"
    path.write_text(text)
    return path


def test_ranks_of_vllm_keep_their_own_sizes(tmp_path: Path) -> None:
    log = read_serving_log(_write(tmp_path, ENGINE + RANKS + ROOM))
    assert (log.server, log.version, log.model, log.tensor) == ("vLLM", "0.19.0", "org/model", 2)
    first, second = log.ranks
    assert (first.name, second.name) == ("TP0", "TP1")
    assert first.weights_bytes == round(7.51 * GIB)
    assert (first.activations_bytes, first.libraries_bytes) == (round(1.89 * GIB), round(2.07 * GIB))
    assert (first.cache_bytes, second.cache_bytes) == (round(63.76 * GIB), round(63.75 * GIB))
    assert (first.share_bytes, second.share_bytes) == (round(75.23 * GIB), None)
    assert (log.tokens, log.sequence, log.concurrency) == (1_044_688, 16384, 63.76)


def test_older_vllm_counts_blocks_and_says_the_plan_in_one_line(tmp_path: Path) -> None:
    text = (
        "INFO worker.py:267] the current vLLM instance can use total_gpu_memory (44.42GiB) x "
        "gpu_memory_utilization (0.90) = 39.98GiB\n"
        "INFO worker.py:267] model weights take 30.71GiB; non_torch_memory takes 0.30GiB; PyTorch activation "
        "peak memory takes 1.26GiB; the rest of the memory reserved for KV Cache is 7.71GiB.\n"
        "INFO executor_base.py:108] # CUDA blocks: 3947, # CPU blocks: 2048\n"
    )
    log = read_serving_log(_write(tmp_path, text))
    (rank,) = log.ranks
    assert (rank.device_bytes, rank.share_bytes) == (round(44.42 * GIB), round(39.98 * GIB))
    assert (rank.weights_bytes, rank.libraries_bytes) == (round(30.71 * GIB), round(0.30 * GIB))
    assert (rank.activations_bytes, rank.cache_bytes) == (round(1.26 * GIB), round(7.71 * GIB))
    assert log.tokens == 3947 * 16


def test_sglang_adds_keys_and_values_and_has_states(tmp_path: Path) -> None:
    text = (
        "[2025-12-29 18:33:03 TP0] Load weight end. type=M, avail mem=13.81 GB, mem usage=1.52 GB.\n"
        "[2025-12-29 18:33:03 TP0] Mamba Cache is there. conv_state size: 4.88GB, ssm_state size: 0.50GB\n"
        "[2025-12-29 18:33:03 TP0] KV Cache is allocated. #tokens: 473854, K size: 2.71 GB, V size: 2.71 GB\n"
        "[2025-12-29 18:33:04 TP0] Capture cuda graph end. Time elapsed: 1.01 s. mem usage=0.03 GB.\n"
        "[2025-12-29 18:33:03 TP1] KV Cache is allocated. #tokens: 473854, KV size: 19.36 GB\n"
    )
    log = read_serving_log(_write(tmp_path, text))
    first, second = log.ranks
    assert (log.server, log.tokens, first.name) == ("SGLang", 473854, "TP0")
    assert first.weights_bytes == round(1.52 * GIB)
    assert first.states_bytes == round(4.88 * GIB) + round(0.5 * GIB)
    assert first.cache_bytes == 2 * round(2.71 * GIB)
    assert first.graphs_bytes == round(0.03 * GIB)
    assert second.cache_bytes == round(19.36 * GIB)


def test_llama_cpp_has_a_row_for_each_device(tmp_path: Path) -> None:
    text = (
        "load_tensors:   CPU_Mapped model buffer size =   417.66 MiB\n"
        "load_tensors:        CUDA0 model buffer size = 18508.35 MiB\n"
        "llama_kv_cache_unified:      CUDA0 KV buffer size =  2110.42 MiB\n"
        "llama_kv_cache_unified:      CUDA0 KV buffer size =   100.00 MiB\n"
        "llama_context:      CUDA0 compute buffer size =   307.00 MiB\n"
    )
    (rank,) = read_serving_log(_write(tmp_path, text)).ranks
    assert rank.name == "CUDA0"
    assert rank.weights_bytes == round(18508.35 * MIB)
    assert rank.cache_bytes == round(2110.42 * MIB) + 100 * MIB
    assert rank.activations_bytes == 307 * MIB


def test_failures_are_told_once_with_their_numbers(tmp_path: Path) -> None:
    long = (
        "ValueError: To serve at least one request with the models's max seq len (262144), (36.0 GiB "
        "KV cache is needed, which is larger than the available KV cache memory (6.94 GiB). Based on "
        "the available memory, the estimated maximum model length is 50512.\n"
    )
    oom = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.88 GiB. GPU 3 has a total capacity "
        "of 21.96 GiB of which 1.29 GiB is free.\n"
    )
    none = "ValueError: No available memory for the cache blocks. Try increasing it.\n"
    log = read_serving_log(_write(tmp_path, ENGINE + long + long + none + oom + oom))
    first, second, third = log.failures
    assert (first.kind, first.longest) == ("sequence too long", 50512)
    assert (first.needed_bytes, first.found_bytes) == (36 * GIB, round(6.94 * GIB))
    assert (second.kind, second.line) == ("no cache", 4)
    assert (third.kind, third.needed_bytes) == ("out of memory", round(1.88 * GIB))


def test_a_compressed_log_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "server.log.gz"
    path.write_bytes(gzip.compress((ENGINE + RANKS).encode()))
    assert len(read_serving_log(path).ranks) == 2


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"step 1 loss 2.0\n",
        b"\0" * 4096 + b"LLM engine (v1",
        b"CUDA out of memory. Tried to allocate 1 GiB",
    ],
)
def test_other_files_are_no_logs_of_servers(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.log"
    path.write_bytes(content)
    assert recognize_serving_log(path) is None
    with pytest.raises(InputFileError, match="expected one of vLLM"):
        read_serving_log(path)


def test_hostile_lines_are_bounded(tmp_path: Path) -> None:
    """A line without an end, numbers that are none, more ranks than any server has."""
    lines = [
        ENGINE,
        "GPU KV cache size: 99,999,999,999,999,999,999 tokens\n",
        *["llama_kv_cache:      CUDA0 KV buffer size = 999999999.00 MiB\n"] * 9,
        "Available KV cache memory: 1.2.3 GiB\n",
        "Available KV cache memory: 99999999999999999999 GiB\n",
        *(f"(Worker_TP{rank} pid=1) Model loading took 1.0 GiB memory\n" for rank in range(5000)),
        "weights " + "memory (" * 200_000,
    ]
    log = read_serving_log(_write(tmp_path, "".join(lines)))
    assert len(log.ranks) == 4096
    assert log.tokens is None
    assert max(rank.cache_bytes or 0 for rank in log.ranks) <= 1 << 50
