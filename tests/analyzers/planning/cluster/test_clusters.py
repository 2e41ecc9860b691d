"""Clusters as people describe them: files in three formats, short forms, folders of Galvatron's profiles."""

import json
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import networkx
import pytest

from vramscope.analyzers.planning.cluster import DEVICES, find_device, make_networkx_graph
from vramscope.analyzers.planning.cluster.model import LINKS
from vramscope.engine.errors import InputFileError, UsageError, VramscopeError
from vramscope.engine.units import GIB
from vramscope.planning.joint import read_cluster

TOML = """\
name = "mixed"
network = { bandwidth = "200 Gb/s", latency = "5 us", kind = "InfiniBand" }

[[nodes]]
name = "new"
count = 2
devices = 2
device = "h100"

[[nodes]]
names = ["old", "oldest"]
link = "pcie4"
devices = [{ device = "a100-40gb" }, { memory = "16GiB", tflops = 80, kind = "X", memory_bandwidth = 700 }]

[[links]]
between = ["new0", "old"]
link = "10 GB/s"

[[links]]
between = ["old:1", "old:0"]
link = "nvlink3"
"""
YAML = """\
name: mixed   # the same cluster
network: {bandwidth: 200 Gb/s, latency: 5 us, kind: InfiniBand}
nodes:
- name: new
  count: 2
  devices: 2
  device: h100
- names: [old, oldest]
  link: pcie4
  devices:
    - device: a100-40gb
    -
      memory: 16GiB
      tflops: 80
      kind: "X"
      memory_bandwidth: 700
links:
  - between: [new0, old]
    link: 10 GB/s
  - {between: ["old:1", "old:0"], link: nvlink3}
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_cluster_file_reads_alike_in_three_formats(tmp_path: Path) -> None:
    toml = read_cluster(write(tmp_path, "c.toml", TOML))
    assert toml == read_cluster(write(tmp_path, "c.yaml", YAML))
    assert toml == read_cluster(str(write(tmp_path, "c.json", json.dumps(tomllib.loads(TOML)))))


def test_devices_and_links_are_those_that_the_file_names(tmp_path: Path) -> None:
    cluster = read_cluster(write(tmp_path, "c.toml", TOML))
    assert [node.name for node in cluster.nodes] == ["new0", "new1", "old", "oldest"]
    assert [device.kind for device in cluster.devices] == ["H100 80GB"] * 4 + ["A100 40GB", "X"] * 2
    other = cluster.devices[5]
    assert (other.memory_bytes, other.flops_per_s, other.memory_bytes_per_s) == (16 * GIB, 80e12, 700e9)
    assert not cluster.is_uniform
    assert cluster.link(0, 1).kind == "NVLink 4"
    assert (cluster.link(0, 2).bytes_per_s, cluster.link(0, 2).latency_s) == (25e9, 5e-6)
    assert cluster.link(5, 1).bytes_per_s == 10e9
    assert cluster.link(4, 5).kind == "NVLink 3"
    assert cluster.link(6, 7).kind == "PCIe 4 x16"
    assert cluster.slowest_link([0, 1, 4]).bytes_per_s == 10e9


def test_the_graph_of_networkx_has_the_widest_path_that_the_cluster_has(tmp_path: Path) -> None:
    cluster = read_cluster("3x2xa100-80gb:25 GB/s")
    graph = cast("Any", make_networkx_graph(cluster))
    assert (len(cluster.devices), len(graph)) == (6, 6 + 3 + 1)
    for first, second in ((0, 1), (1, 4)):
        path = networkx.shortest_path(graph, first, second)
        narrowest = min(graph.edges[edge]["bytes_per_s"] for edge in pairwise(path))
        assert narrowest == cluster.link(first, second).bytes_per_s
    own = make_networkx_graph(read_cluster(write(tmp_path, "c.toml", TOML)))
    assert networkx.shortest_path(own, 4, 5) == [4, 5]


def test_short_forms() -> None:
    cluster = read_cluster("128x8xH100")
    assert (len(cluster.nodes), len(cluster.devices), cluster.is_uniform) == (128, 1024, True)
    assert cluster.link(7, 8).bytes_per_s == 50e9
    single = read_cluster("8xa100_80gb")
    assert (single.network, single.devices[0].memory_bytes) == (None, 80 * GIB)


NODE = '[[nodes]]\ndevice = "h100"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (NODE + NODE, 'node0 and node1 have no link: write network = "ib-ndr"'),
        (NODE + "count = 2\ncuont = 1", "nodes[0]: unknown key 'cuont': did you mean count?"),
        (NODE + 'count = "two"', "nodes[0].count: expected `int`, got `str`"),
        ('[[nodes]]\ndevice = "h10"', "nodes[0]: device 'h10' is unknown: did you mean h100"),
        ('[[nodes]]\nmemory = "80GiB"', "nodes[0]: neither device nor tflops is given"),
        (
            "[[nodes]]\nmemory = 9\ntflops = 9\ndevices = 2",
            'node0:0 and node0:1 have no link: write link, for example link = "pcie4"',
        ),
        (NODE + "devices = 0", "nodes[0]: devices: 1 x 0 devices; expected at least 1 x 1"),
        (NODE + "count = 1000000", "nodes[0]: count is 1,000,000; expected 1 to 65,536"),
        (NODE + "count = 60000\ndevices = 8", "nodes[0]: more than 65,536 devices"),
        (NODE + 'names = ["a", "a"]', "nodes[0]: node 'a' appears twice"),
        (NODE + 'name = "a\\nb"', "nodes[0]: node 'a\\nb': expected 1 to 100 printable characters"),
        (
            NODE + '[[links]]\nbetween = ["node0", "nod1"]\nlink = "ib-ndr"',
            "links[0]: 'nod1' is neither a node",
        ),
        (NODE + 'link = "nvlnik4"', "nodes[0]: link 'nvlnik4' is unknown: did you mean nvlink4"),
        ('network = "25"\n' + NODE, "network: not a bandwidth: '25'; expected for example 25 GB/s"),
        ("network = [\n" + NODE, "line 2"),
        ("", "empty"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    path = write(tmp_path, "c.toml", text)
    with pytest.raises(InputFileError) as caught:
        read_cluster(path)
    has_line = words.startswith(("nodes[", "links[", "network:", "node0:0"))
    assert str(caught.value).startswith(f"{path}, line " if has_line else f"{path}: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_key_is_told_with_its_line(tmp_path: Path) -> None:
    toml = "# a cluster\n" + NODE + "\n[[nodes]]\ncuont = 3\n"
    yaml = "nodes:\n  - device: h100\n  - name: b\n    device: h10\n"
    for name, text, words in (
        ("c.toml", toml, "line 6: nodes[1]: unknown key 'cuont'"),
        ("c.toml", toml.replace("cuont = 3", "count = true"), "line 6: nodes[1].count: expected `int`"),
        (
            "c.toml",
            toml.replace("cuont = 3", 'device = "h10"'),
            "line 5: nodes[1]: device 'h10' is unknown",
        ),
        ("c.yaml", yaml, "line 3: nodes[1]: device 'h10' is unknown"),
        ("c.yaml", yaml.replace("h10\n", "7\n"), "line 4: nodes[1].device: expected `str`"),
        ("c.yaml", "network: 3 m\n" + yaml.replace("h10\n", "h100\n"), "line 1: network: not a bandwidth"),
    ):
        with pytest.raises(InputFileError) as caught:
            read_cluster(write(tmp_path, name, text))
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1000000x8xh100", "8,000,000 devices; expected at most 65,536"),
        ("16x8xl40s", "node0 and node1 have no link: the network of l40s is unknown"),
        ("8xa100", "did you mean a100-40gb or a100-80gb"),
        ("2x8xh100:hdr", "link 'hdr' is unknown: did you mean ib-hdr?"),
        ("nonsense", "is not a file; expected one, or for example 128x8xh100"),
        ("absent.toml", "no such file"),
    ],
)
def test_what_is_wrong_with_a_short_form_is_one_line(text: str, words: str) -> None:
    with pytest.raises(VramscopeError) as caught:
        read_cluster(text)
    assert words in str(caught.value)


def write_profiles(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    files = {
        "allreduce_bandwidth_2nodes_4gpus_per_node.json": {
            "allreduce_size_8_consec_1": 40.5,
            "allreduce_size_2_consec_0": 8.25,
        },
        "p2p_bandwidth_2nodes_4gpus_per_node.json": {"pp_size_2": 7.5, "pp_size_4": 8},
        "allreduce_bandwidth_1nodes_4gpus_per_node.json": {"allreduce_size_4_consec_1": 150},
        "p2p_bandwidth_1nodes_4gpus_per_node.json": {"pp_size_2": 160.5},
        "sp_time_1nodes_4gpus_per_node.json": {
            "allreduce_size_4_2MB_time": 0.5,
            "allreduce_size_4_1MB_time": 0.25,
            "all2all_size_4_1MB_time": 0.125,
        },
        "overlap_coefficient.json": {"overlap_coe": 1.125},
    }
    for name, content in files.items():
        write(folder, name, json.dumps(content))
    return folder


def test_profiles_of_galvatron_are_a_table_and_a_cluster(tmp_path: Path) -> None:
    folder = write_profiles(tmp_path / "hardware")
    cluster = read_cluster(f"a100-80gb@{folder}")
    assert [len(node.devices) for node in cluster.nodes] == [4, 4]
    assert (cluster.link(0, 1).bytes_per_s, cluster.link(0, 4).bytes_per_s) == (160.5e9, 7.5e9)
    table = cluster.measured
    assert table is not None
    assert table.allreduce_bytes_per_s == {(8, True): 40.5e9, (2, False): 8.25e9}
    assert table.point_to_point_bytes_per_s == {2: 7.5e9, 4: 8e9}
    assert table.allreduce_s == {4: ((1 << 20, 0.25e-3), (2 << 20, 0.5e-3))}
    assert table.all_to_all_s == {4: ((1 << 20, 0.125e-3),)}
    assert (table.overlap_slowdown, table.measured_on) == (1.125, "2 nodes of 4 devices")


def test_a_cluster_file_takes_the_profiles_of_its_shape(tmp_path: Path) -> None:
    write_profiles(tmp_path / "hardware")
    path = write(tmp_path, "c.toml", 'galvatron = "hardware"\n' + NODE + "devices = 4\n")
    table = read_cluster(path).measured
    assert table is not None
    assert (table.measured_on, table.allreduce_bytes_per_s) == ("1 nodes of 4 devices", {(4, True): 150e9})


def test_bad_profiles_are_told_with_their_file(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="no hardware profile of Galvatron"):
        read_cluster(f"h100@{tmp_path}")
    with pytest.raises(UsageError, match="unknown device 'h1000'; did you mean h100"):
        read_cluster(f"h1000@{tmp_path}")
    with pytest.raises(InputFileError, match="a folder of profiles does not name its devices"):
        read_cluster(tmp_path)
    write(tmp_path, "p2p_bandwidth_1nodes_2gpus_per_node.json", '{"pp_size_two": 1}')
    with pytest.raises(
        InputFileError, match="json: key 'pp_size_two' is unknown; expected for example pp_size_2"
    ):
        read_cluster(f"h100@{tmp_path}")
    write(tmp_path, "p2p_bandwidth_1nodes_2gpus_per_node.json", '{"pp_size_2": -1}')
    with pytest.raises(InputFileError, match="pp_size_2 is -1; expected a number above 0"):
        read_cluster(f"h100@{tmp_path}")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("rtx4090", "RTX 4090"),
        ("4090", "RTX 4090"),
        ("RTX 4090", "RTX 4090"),
        ("GeForce_RTX-4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 3090 Ti", "RTX 3090 Ti"),
        ("rtx a6000", "RTX A6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("RTX PRO 6000", "RTX PRO 6000 Blackwell"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB"),
        ("NVIDIA H100 80GB HBM3", "H100 80GB"),
        ("Tesla T4", "T4"),
        ("B300", "B300 288GB"),
    ],
)
def test_devices_are_found_by_any_spelling_of_their_name(name: str, kind: str) -> None:
    assert find_device(name).kind == kind


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("A100", "a100-40gb or a100-80gb"),
        ("rtx 4095", "rtx4090"),
        ("3060", "rtx3060-12gb"),
        ("6000", "a6000"),
        ("H100-80GB", "h100[?]$"),
    ],
)
def test_an_unknown_device_is_refused_with_the_nearest(name: str, near: str) -> None:
    with pytest.raises(UsageError, match=near):
        find_device(name)


def test_every_device_has_figures_of_its_kind() -> None:
    squashed = [key.replace("-", "") for key in DEVICES]
    assert len(set(squashed)) == len(squashed)
    assert len({model.kind for model in DEVICES.values()}) == len(DEVICES)
    for model in DEVICES.values():
        assert model.link in LINKS
        assert model.network is None or model.network in LINKS
        assert (model.capability is None) == model.kind.startswith("MI")
        assert 5 < model.tflops < 5000
        assert 100 < model.memory_gb_per_s < 10_000
