"""Parameters of known models are those their authors published; their FLOPs are those PyTorch counts."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from vramscope import create_gpt_model_graph
from vramscope.analyzers.planning.graph import MODELS, Architecture, find_model, plan_layers
from vramscope.analyzers.planning.theory import ExpertShape, count_parameters
from vramscope.analyzers.planning.theory.presets import PRESETS
from vramscope.engine.errors import UsageError

pytestmark = pytest.mark.loads_torch

SMALL = Architecture(family="gpt", layers=2, hidden=32, heads=4, vocabulary=70, positions=64)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("gpt-1.5b", 1_635_537_600),
        ("gpt2", 124_439_808),
        ("gpt2-xl", 1_557_611_200),
        ("gpt3-175b", 174_604_259_328),
        ("llama2-7b", 6_738_415_616),
        ("llama3-8b", 8_030_261_248),
        ("mistral-7b", 7_241_732_096),
        ("qwen2.5-7b", 7_615_616_512),
        ("mixtral-8x7b", 46_702_792_704),
        ("qwen3-8b", 8_190_735_360),
        ("qwen3-30b-a3b", 30_532_122_624),
        ("deepseek-v2", 235_741_434_880),
        ("deepseek-v3", 671_026_404_352),
        ("t5-small", 60_506_624),
        ("t5-3b", 2_851_598_336),
        ("bert-base", 109_482_240),
    ],
)
def test_parameters_are_the_published_ones(name: str, parameters: int) -> None:
    assert create_gpt_model_graph(name).total_parameters == parameters


def test_plan_and_estimate_mean_the_same_model_by_a_name() -> None:
    assert PRESETS.keys() <= MODELS.keys()
    for name in PRESETS:
        assert create_gpt_model_graph(name).total_parameters == count_parameters(PRESETS[name]), name


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"unknown model 'gpt-1\.6b': did you mean gpt-1\.5b"):
        find_model("gpt-1.6b")
    with pytest.raises(UsageError, match=r"known are gpt-0\.3b, gpt-1\.5b"):
        find_model("???")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"heads": 7}, "a hidden size of 32 does not divide into 7 heads"),
        ({"kv_heads": 3}, "4 heads do not divide into 3 groups"),
        ({"layers": 0}, "layers is 0, expected at least 1"),
        (
            {"experts": ExpertShape(experts=4, top_k=5, ffn=8, is_expert_layer=(True,))},
            "5 of 4 experts per token",
        ),
    ],
)
def test_sizes_that_cannot_be_are_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        plan_layers(msgspec.structs.replace(SMALL, **changes))


CASES = {
    "GPT": SMALL,
    "LLaMA with grouped queries": msgspec.structs.replace(
        SMALL, family="llama", kv_heads=2, intermediate=48, has_gate=True
    ),
}
SEQUENCES, SEQUENCE = 3, 20


def _make_block(model: Architecture) -> Callable[[Any], Any]:
    """Return the matrix products of a transformer block, in PyTorch."""
    torch = pytest.importorskip("torch")
    linear, matmul = torch.nn.functional.linear, torch.matmul
    hidden, width, keys = model.hidden, model.width, model.groups * model.head_width
    sizes = [(hidden, hidden), (keys, hidden), (keys, hidden), (hidden, hidden)]
    sizes += [(width, hidden), (hidden, width), (width, hidden)]
    query, key, value, out, wide, narrow, gate = (torch.randn(*each, requires_grad=True) for each in sizes)

    def split(each: Any, heads: int) -> Any:
        parts = each.view(SEQUENCES, SEQUENCE, heads, model.head_width).transpose(1, 2)
        return parts.repeat_interleave(model.heads // heads, dim=1)

    def run(entering: Any) -> Any:
        q = split(linear(entering, query), model.heads)
        k, v = (split(linear(entering, weight), model.groups) for weight in (key, value))
        mixed = matmul(torch.softmax(matmul(q, k.transpose(2, 3)), -1), v)
        after = linear(mixed.transpose(1, 2).reshape(SEQUENCES, SEQUENCE, hidden), out)
        inner = linear(after, wide)
        inner = inner * linear(after, gate) if model.has_gate else torch.relu(inner)
        return linear(inner, narrow)

    return run


@pytest.mark.parametrize("name", CASES)
def test_flops_are_those_that_pytorch_counts(name: str) -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    model = CASES[name]
    layers, _, _ = plan_layers(model, seq_length=SEQUENCE, micro_batch=SEQUENCES)
    logits = torch.randn(model.vocabulary, model.hidden, requires_grad=True)
    computes: tuple[Callable[[Any], Any], ...] = (
        _make_block(model),
        lambda entering: torch.nn.functional.linear(entering, logits),
    )
    for layer, compute in zip((layers[1], layers[-1]), computes, strict=True):
        with FlopCounterMode(display=False) as forward:
            result = compute(torch.randn(SEQUENCES, SEQUENCE, model.hidden, requires_grad=True))
        with FlopCounterMode(display=False) as backward:
            result.sum().backward()
        assert layer.forward_flops == forward.get_total_flops()
        assert layer.backward_flops == backward.get_total_flops()


def test_activations_of_a_gpt_block_are_34_bytes_an_element() -> None:
    """The sum of Korthikanti et al. without the matrix of attention scores."""
    layers, _, _ = plan_layers("gpt-1.5b", seq_length=512, micro_batch=4)
    assert layers[1].activation_bytes == 34 * 512 * 4 * 1600
