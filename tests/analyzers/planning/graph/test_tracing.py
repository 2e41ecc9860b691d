"""A traced module has the parameters, FLOPs and activations that PyTorch has, and allocates nothing."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests import REPOSITORY
from tests.components import require_package
from tests.later import LaterModule
from tests.warm.starter import write_warm_python
from vramscope import GraphAnalyzer, create_gpt_model_graph, trace_model_graph
from vramscope.engine.errors import UsageError

pytestmark = pytest.mark.loads_torch

torch: Any = LaterModule("torch")

WORKLOADS = REPOSITORY / "engine" / "workloads"
SEQUENCES, TOKENS, WIDTH, LAYERS, VOCABULARY = 2, 32, 64, 3, 1000


@pytest.fixture(autouse=True)
def _installed_torch() -> None:
    require_package("torch")


def make_gpt() -> Any:
    """The small GPT of the workloads, whose head uses the weights of its embedding."""
    sys.path.insert(0, str(WORKLOADS))
    try:
        from small_gpt import SmallGPT
    finally:
        sys.path.remove(str(WORKLOADS))
    return SmallGPT(VOCABULARY, WIDTH, LAYERS, heads=4, longest=128)


def test_flops_and_parameters_are_those_of_pytorch_and_of_the_catalog_s_formulas() -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    graph = trace_model_graph(make_gpt, f"{SEQUENCES}x{TOKENS}:int64")
    model = make_gpt()
    # The fused kernel of the CPU is not among those that are counted.
    plain = sdpa_kernel(SDPBackend.MATH)
    with plain, FlopCounterMode(display=False) as counter:
        result = model(torch.zeros(SEQUENCES, TOKENS, dtype=torch.int64))
    assert sum(layer.forward_flops or 0 for layer in graph.layers) == counter.get_total_flops()
    with FlopCounterMode(display=False) as counter:
        result.sum().backward()
    fused = sum(layer.backward_flops or 0 for layer in graph.layers)
    again = LAYERS * SEQUENCES * 2 * TOKENS * TOKENS * WIDTH
    assert fused - counter.get_total_flops() == again, "the fused kernel computes its scores anew"
    assert graph.total_parameters == sum(each.numel() for each in model.parameters())
    kinds = [layer.layer_type for layer in graph.layers]
    assert kinds == ["embedding", "embedding", *["transformer_block"] * 3, "layer_norm", "output_head"]
    assert graph.layers[-1].shared_parameter_count == VOCABULARY * WIDTH
    assert [(edge.source_id, edge.target_id) for edge in graph.edges] == [(n, n + 1) for n in range(6)]
    assert {edge.communication_cost for edge in graph.edges} == {SEQUENCES * TOKENS * WIDTH * 4 / 2**20}


def test_activations_are_what_autograd_saves_and_hardly_differ_from_the_formula() -> None:
    narrow, wide = (
        trace_model_graph(make_gpt, f"{SEQUENCES}x{TOKENS}:int64", dtype=dtype)
        for dtype in ("bfloat16", "float32")
    )
    block = narrow.layers[3]
    theory = 34 - 2  # of Korthikanti et al. without its masks of dropout, per token and channel
    assert block.activation_bytes is not None
    assert block.activation_bytes / (SEQUENCES * TOKENS * WIDTH) == pytest.approx(theory, rel=0.05)
    assert block.memory_usage * 2 == wide.layers[3].memory_usage
    assert GraphAnalyzer(wide).partition_graph_balanced(3, strategy="exact-1f1b").total_stages == 3


def test_a_model_far_larger_than_memory_is_traced() -> None:
    class Tower(torch.nn.Module):  # type: ignore[misc,no-any-unimported]
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(400_000, 400_000) for _ in range(4))
            self.shared = self.layers[0]

        def forward(self, hidden: Any) -> Any:
            first = hidden
            for layer in self.layers:
                hidden = layer(hidden)
            return self.shared(hidden) + first

    graph = trace_model_graph(Tower, "8x400000")
    assert graph.total_parameters == 4 * (400_000**2 + 400_000)
    assert graph.layers[-1].name == "layers.0 (2)"
    assert graph.layers[-1].parameter_count == 0
    assert graph.layers[-1].held_parameters == 400_000**2 + 400_000


def test_what_cannot_be_traced_is_told_and_a_factory_s_own_error_is_its_own() -> None:
    class Picky(torch.nn.Module):  # type: ignore[misc,no-any-unimported]
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(4, 4)

        def forward(self, hidden: Any) -> Any:
            made = self.first(hidden)
            return made[made > 0]

    with pytest.raises(
        UsageError, match=r"layer first: aten\.(index|nonzero).* cannot run on the meta device"
    ):
        trace_model_graph(Picky, "2x4")
    with pytest.raises(UsageError, match="input 2xq: expected a shape and a type, as 4x1024:int64"):
        trace_model_graph(Picky, "2xq")
    with pytest.raises(UsageError, match="the factory made a int"):
        trace_model_graph(lambda: 3, "2x4")
    with pytest.raises(ZeroDivisionError):
        trace_model_graph(lambda: 1 // 0, "2x4")


def test_a_factory_by_name_is_traced_in_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    source = "import torch\ndef make():\n    print('building')\n    return torch.nn.Linear(4, 2)\n"
    (tmp_path / "mine.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", write_warm_python(tmp_path))
    graph = trace_model_graph("mine:make", "3x4")
    assert (graph.name, graph.total_parameters) == ("Linear", 10)
    assert capfd.readouterr().out == "", "what the factory prints is not our data"
    with pytest.raises(UsageError, match=r"^model mine: expected MODULE:FUNCTION"):
        trace_model_graph("mine", "3x4")


def test_the_graph_of_a_traced_model_is_saved_and_read(tmp_path: Path) -> None:
    graph = trace_model_graph(make_gpt, "2x32:int64", name="small")
    graph.save_to_json(tmp_path / "small_model_graph.json")
    again = create_gpt_model_graph(tmp_path / "small_model_graph.json")
    assert (again.name, again.layers, again.edges) == ("small", graph.layers, graph.edges)


def test_a_block_like_deepseek_s_has_the_parameters_and_flops_of_the_formulas() -> None:
    from tests.analyzers.planning.graph import latent_block

    planned = create_gpt_model_graph(latent_block.SIZES, seq_length=16, micro_batch=3).layers[1]
    (traced,) = trace_model_graph(latent_block.Model, f"3x16x{latent_block.SIZES.hidden}").layers
    assert (traced.parameter_count, traced.forward_flops) == (planned.parameter_count, planned.forward_flops)
