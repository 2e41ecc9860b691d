"""What a script is told about devices, and what it may do with them."""

from pathlib import Path

from tests.engine.simulation.simulated import GIB, answers, run_script


def test_torch_answers_as_a_cuda_build_does(tmp_path: Path) -> None:
    found = answers(
        tmp_path,
        """
        import json, torch
        tensor = torch.ones(3, device="cuda:1")
        properties = torch.cuda.get_device_properties(1)
        print(json.dumps({
            "available": [torch.cuda.is_available(), torch.accelerator.is_available()],
            "count": [torch.cuda.device_count(), torch.accelerator.device_count()],
            "current": [torch.cuda.current_device(), str(torch.accelerator.current_accelerator())],
            "name": [torch.cuda.get_device_name(), properties.name], "total": properties.total_memory,
            "tensor": [str(tensor.device), tensor.is_cuda, tensor.is_cpu, tensor.get_device(), tensor.type()],
            "printed": repr(tensor), "bf16": torch.cuda.is_bf16_supported(),
            "mark": torch.cuda._vramscope_simulated["job"],
            "free": torch.cuda.mem_get_info(0),
        }))
        """,
        devices=2,
        context_bytes=1 << 20,
        job="a-job",
    )
    assert found == {
        "available": [True, True],
        "count": [2, 2],
        "current": [0, "cuda"],
        "name": ["Simulated 2 GiB GPU"] * 2,
        "total": 2 * GIB,
        "tensor": ["cuda:1", True, False, 1, "torch.cuda.FloatTensor"],
        "printed": "tensor([1., 1., 1.], device='cuda:1')",
        "bf16": True,
        "mark": "a-job",
        "free": [2 * GIB - (1 << 20), 2 * GIB],
    }


def test_a_card_of_a_kind_has_its_capability(tmp_path: Path) -> None:
    found = answers(
        tmp_path,
        """
        import json, torch
        properties = torch.cuda.get_device_properties(0)
        print(json.dumps([torch.cuda.get_device_name(), torch.cuda.get_device_capability(),
                          properties.multi_processor_count, torch.cuda.get_arch_list()]))
        """,
        kind="H100",
        capability=[9, 0],
        multiprocessors=132,
    )
    assert found == ["Simulated H100 of 2 GiB", [9, 0], 132, ["sm_90"]]


def test_what_takes_more_of_a_real_card_than_tensors_is_noted(tmp_path: Path) -> None:
    found = answers(
        tmp_path,
        """
        import json, torch
        from torch.nn.functional import conv2d
        conv2d(torch.ones(1, 2, 99, 99), torch.ones(4, 2, 1, 1))  # not on the card
        images = torch.ones(1, 2, 8, 8, device="cuda", requires_grad=True)
        weight = torch.ones(4, 2, 1, 1, device="cuda", requires_grad=True)
        for _ in range(2):
            conv2d(images, weight).sum().backward()
        conv2d(images.detach(), weight).sum().backward()
        torch.compile(lambda: None, mode="reduce-overhead")
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = False
        last = torch.ones(1, 2, 4, 4, device="cuda").to(memory_format=torch.channels_last)
        conv2d(last, weight)
        torch.backends.cudnn.enabled = False
        conv2d(torch.ones(1, 2, 5, 5, device="cuda"), weight)
        print(json.dumps(torch.cuda._vramscope_simulated["describe_uses"]()))
        """,
    )
    # Input, weight, output, groups, transposed, type, channels last, benchmark mode, TF32.
    first = [[1, 2, 8, 8], [4, 2, 1, 1], [1, 4, 8, 8], 1, False, "float32", False, False, True]
    second = [[1, 2, 4, 4], [4, 2, 1, 1], [1, 4, 4, 4], 1, False, "float32", True, True, False]
    assert found == {
        "convolutions": [[first, 1 + 2 + 4], [second, 1]],
        "groups": [],
        "has_graphs": True,
    }


def test_of_many_convolutions_the_largest_are_remembered(tmp_path: Path) -> None:
    found = answers(
        tmp_path,
        """
        import json, torch
        weight = torch.ones(1, 1, 1, device="cuda")
        for size in (9000, *range(1, 4200)):
            torch.nn.functional.conv1d(torch.ones(1, 1, size, device="cuda"), weight)
        print(json.dumps(torch.cuda._vramscope_simulated["describe_uses"]()["convolutions"]))
        """,
    )
    assert [convolution[0][2] for convolution, _ in found] == [9000, *range(4199, 4168, -1)]


MIXING = """
import json, torch
from torch.nn import functional
cuda = torch.ones(3, 3, device="cuda")
def name_error(call):
    try:
        call()
    except (RuntimeError, TypeError) as error:
        return str(error)
print(json.dumps({
    "add": name_error(lambda: cuda + torch.ones(3)),
    "devices": name_error(lambda: cuda @ torch.ones(3, 3, device="cuda:1")),
    "loss": name_error(lambda: functional.cross_entropy(cuda, torch.tensor([0, 1, 2]))),
    "index": name_error(lambda: torch.ones(3)[torch.tensor([0], device="cuda")]),
    "numpy": name_error(lambda: cuda.numpy()),
    "ordinal": name_error(lambda: torch.zeros(1, device="cuda:7")),
    "graph": name_error(lambda: torch.cuda.CUDAGraph()),
    "annotation": name_error(lambda: torch.cuda.CUDAGraph | None),
    "generator": name_error(lambda: torch.randn(3, device="cuda", generator=torch.Generator())),
    "number": name_error(lambda: cuda + torch.tensor(1.0)),
    "host index": name_error(lambda: cuda[torch.tensor([0])]),
    "copy": name_error(lambda: cuda.copy_(torch.ones(3, 3))),
    "one hot": name_error(lambda: functional.one_hot(cuda.long(), 4) @ cuda.new_ones(4, 1).long()),
}))
"""


def test_mixed_devices_are_refused_as_on_a_card_and_nothing_else_is(tmp_path: Path) -> None:
    found = answers(tmp_path, MIXING, devices=2)
    both = "Expected all tensors to be on the same device, but found at least two devices, "
    assert found["add"] == found["loss"] == f"{both}cuda:0 and cpu!"
    assert found["devices"] == f"{both}cuda:0 and cuda:1!"
    assert found["index"].startswith("indices should be either on cpu or on the same device")
    assert found["numpy"].startswith("can't convert cuda:0 device type tensor to numpy")
    assert found["ordinal"] == "CUDA error: invalid device ordinal"
    assert found["graph"].startswith("torch.cuda.CUDAGraph is not simulated")
    assert found["generator"] == "Expected a 'cuda' device type for generator but found 'cpu'"
    allowed = ("number", "host index", "copy", "one hot", "annotation")
    assert [found[it] for it in allowed] == [None] * len(allowed)


MOVING = """
import copy, io, json, threading, torch
from torch import nn
layer = nn.Linear(8, 8).cuda()
def reload(content, **options):
    file = io.BytesIO()
    torch.save(content, file)
    file.seek(0)
    return str(torch.load(file, **options)["it"].device)
leaf = torch.ones(4, requires_grad=True)
(leaf.to("cuda:0").to("cuda:1") * 2).sum().backward()
in_thread = []
def work():
    in_thread.append(str((torch.zeros(3, device="cuda") + 1).device))
thread = threading.Thread(target=work)
thread.start(); thread.join()
with torch.device("cuda"):
    made = torch.ones(3), nn.Linear(3, 3).weight, torch.ones(3, device="cpu")
@torch.jit.script
def scripted(x):
    return torch.zeros([3], device=x.device) + x
print(json.dumps({
    "saved": reload({"it": layer.weight}), "mapped": reload({"it": layer.weight}, map_location="cpu"),
    "mapped back": reload({"it": torch.ones(3)}, map_location="cuda:1"),
    "copied": str(copy.deepcopy(layer).weight.device),
    "gradient": [str(leaf.grad.device), leaf.grad.tolist()],
    "thread": in_thread, "default": [str(it.device) for it in made],
    "meta": str(nn.Linear(3, 3, device="meta").to_empty(device="cuda").weight.device),
    "like": [str(torch.zeros_like(layer.weight, **it).device) for it in ({}, {"device": "cpu"})],
    "from numpy": str(torch.as_tensor(torch.ones(3).numpy(), device="cuda").device),
    "pinned": [torch.ones(3).pin_memory().is_pinned(), torch.ones(3).is_pinned()],
    "scripted": str(scripted(torch.ones(3)).device),
}))
"""


def test_tensors_go_where_they_are_sent(tmp_path: Path) -> None:
    found = answers(tmp_path, MOVING, devices=2)
    assert found == {
        "saved": "cuda:0",
        "mapped": "cpu",
        "mapped back": "cuda:1",
        "copied": "cuda:0",
        "gradient": ["cpu", [2.0] * 4],
        "thread": ["cuda:0"],
        "default": ["cuda:0", "cuda:0", "cpu"],
        "meta": "cuda:0",
        "like": ["cuda:0", "cpu"],
        "from numpy": "cuda:0",
        "pinned": [True, False],
        "scripted": "cpu",
    }


def test_a_forked_child_may_not_use_a_device_that_its_parent_uses(tmp_path: Path) -> None:
    result = run_script(
        tmp_path,
        """
        import os, torch
        held = torch.zeros(1 << 20, device="cuda")
        pid = os.fork()
        if not pid:
            del held
            try:
                torch.zeros(1, device="cuda")
            except RuntimeError as error:
                print(error, flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
        print(torch.cuda.memory_allocated())
        """,
        {"total_bytes": GIB},
    )
    assert result.returncode == 0, result.stderr
    refusal, allocated = result.stdout.splitlines()
    assert refusal.startswith("Cannot re-initialize CUDA in forked subprocess.")
    assert int(allocated) == 4 << 20


def test_hidden_devices_are_not_there(tmp_path: Path) -> None:
    source = "import torch; print(torch.cuda.is_available(), torch.cuda.device_count())"
    config = {"total_bytes": GIB, "devices": 4}
    some = run_script(tmp_path, source, config, CUDA_VISIBLE_DEVICES="1,3")
    none = run_script(tmp_path, source, config, CUDA_VISIBLE_DEVICES="-1")
    assert some.stdout.split() == ["True", "2"]
    assert none.stdout.split() == ["False", "0"]


def test_a_module_goes_to_a_card_by_its_number(tmp_path: Path) -> None:
    script = """
    import json, torch
    layer = torch.nn.Linear(4, 4)
    found = [torch.cuda.is_initialized(), str(layer.to(1).weight.device)]
    found += [str(layer.to(device=0, dtype=torch.bfloat16).weight.device), str(layer.weight.dtype)]
    try:
        layer.to(2)
    except RuntimeError as error:
        found.append(str(error))
    print(json.dumps(found))
    """
    for is_fake in (False, True):
        found = answers(tmp_path, script, devices=2, is_fake=is_fake)
        assert found == [False, "cuda:1", "cuda:0", "torch.bfloat16", "CUDA error: invalid device ordinal"]


def test_a_number_is_a_device_in_every_place_that_takes_one(tmp_path: Path) -> None:
    script = """
    import json, pickle, torch
    named = torch.device(1)
    found = [str(torch.device(it)) for it in (0, "cpu", named)] + [str(torch.device("cuda", 1))]
    torch.set_default_device(1)
    found.append(str(torch.ones(2).device))
    torch.set_default_device(None)
    with torch.device(0):
        found.append(str(torch.ones(2).device))
    # What PyTorch and libraries ask of the class of devices.
    kinds = {type(named): "device"}
    found += [isinstance(named, torch.device), kinds[torch.device], type(named) == torch.device]
    found.append(isinstance("cuda", torch.device) or isinstance(0, torch.device))
    found.append(pickle.loads(pickle.dumps([named, torch.device])) == [named, torch.device])
    try:
        torch.device(2)
    except RuntimeError as error:
        found.append(str(error))
    @torch.jit.script
    def move(tensor: torch.Tensor, place: torch.device):
        return tensor.to(torch.device("cpu")), place
    found.append(str(move(torch.ones(2), named)[1]))
    print(json.dumps(found))
    """
    for is_fake in (False, True):
        found = answers(tmp_path, script, devices=2, is_fake=is_fake)
        assert found[:6] == ["cuda:0", "cpu", "cuda:1", "cuda:1", "cuda:1", "cuda:0"]
        assert found[6:11] == [True, "device", True, False, True]
        assert found[11:] == ["CUDA error: invalid device ordinal", "cuda:1"]
