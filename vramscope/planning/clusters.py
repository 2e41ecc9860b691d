"""`read_cluster`: a cluster from a file, from measurements, from a few characters, or of this machine."""

from pathlib import Path

from msgspec.structs import replace

from vramscope.analyzers.planning.cluster import (
    DEVICES,
    Cluster,
    build_cluster,
    is_short_form,
    make_collective_table,
    make_measured_cluster,
    parse_short_form,
)
from vramscope.engine.errors import InputFileError
from vramscope.engine.files.base.input_file import show_path
from vramscope.engine.files.cluster_file import read_cluster_file
from vramscope.engine.files.galvatron import read_galvatron_hardware


def read_cluster(cluster: str | Path) -> Cluster:
    """Return the cluster that a text or a file describes.

    Args:
        cluster: A cluster file (TOML, JSON or YAML), or a short form: `128x8xh100` is nodes, devices of each
            and their name, `16x8xl40s:ib-hdr` names the network too, `a100-80gb@FOLDER` takes the bandwidths
            from the hardware profiles of Galvatron in a folder, `local` is this machine.

    Raises:
        UsageError: The text is none of these, or names what is not known.
        SourceUnavailableError: `local`, and the driver does not tell of any device.
        InputFileError: The file cannot be read or understood.
    """
    text = str(cluster)
    if text == "local":
        return _read_local()
    device, at, folder = text.partition("@")
    if at and device.lower() in DEVICES:
        return make_measured_cluster(read_galvatron_hardware(Path(folder)), device, text)
    path = Path(cluster)
    if not path.exists() and (is_short_form(text) or not (path.suffix or "/" in text)):
        return parse_short_form(text)
    return _read_path(path)


def _read_local() -> Cluster:
    from vramscope.analyzers.planning.cluster.building import make_local_cluster
    from vramscope.engine.sampling.live import node_name
    from vramscope.engine.sources.nvml.topology import read_topology

    return make_local_cluster(read_topology(), node_name())


def _read_path(path: Path) -> Cluster:
    if path.is_dir():
        raise InputFileError(
            f"{show_path(path)}: a folder does not tell which devices were measured; write their name before "
            f'it, for example a100-80gb@{show_path(path)}, or give a cluster file with galvatron = "…"'
        )
    entry, where = read_cluster_file(path)
    if entry.galvatron is None:
        return build_cluster(entry, where)
    measured = read_galvatron_hardware(path.parent / entry.galvatron)
    plain = build_cluster(entry, where)
    table = make_collective_table(measured, len(plain.nodes), len(plain.nodes[0].devices))
    return replace(plain, measured=table)
