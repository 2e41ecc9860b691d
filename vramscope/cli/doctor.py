"""The checks of `vramscope doctor`, each with a deadline: driver, devices, agent, versions, terminal."""

import os
import platform
import shutil
import subprocess
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from vramscope import __version__
from vramscope.analyzers.findings import driver_tools
from vramscope.analyzers.findings.driver_tools import DriverTools
from vramscope.engine.errors import (
    AccessDeniedError,
    DeviceError,
    HubUnreachableError,
    LibraryMissingError,
    RuntimeFolderError,
    SourceUnavailableError,
    UsageError,
    VramscopeError,
)
from vramscope.engine.model import DeviceHardware
from vramscope.engine.paths import check_private, locate_root, locate_runtime_folder
from vramscope.engine.plugins import find_entry_points, make_plugins
from vramscope.engine.settings.layers import list_unknown_variables
from vramscope.engine.sources.drm.cards import AMD, INTEL, list_cards
from vramscope.engine.sources.drm.reader import DrmReader
from vramscope.engine.sources.drm.source import DrmSource
from vramscope.engine.sources.host import HostReader
from vramscope.engine.sources.nvml import NvmlSource
from vramscope.engine.sources.nvml.driver import NvmlLibrary, read_kernel_driver_version
from vramscope.engine.sources.processes import has_own_pids
from vramscope.engine.sources.source import DeviceReader, HardwareReader, HardwareReading
from vramscope.engine.units import format_age, format_bytes
from vramscope.engine.wire.endpoints import holder_pid, is_hub_alive
from vramscope.tui.terminal.abilities import read_abilities

from .frame.settings import load_configuration

if TYPE_CHECKING:
    from importlib.metadata import Distribution

    from vramscope.engine.model import HubStatus
    from vramscope.engine.sandbox import Protection


# `note`: worth knowing; `warning`: something works less well; `problem`: something does not work.
CheckStatus = Literal["ok", "note", "warning", "problem"]

EXIT_INTERNAL = 1


class Check(msgspec.Struct, frozen=True):
    name: str
    status: CheckStatus
    # What is there, in one sentence.
    found: str
    # What to do, in one sentence; empty where there is nothing to do.
    advice: str = ""
    # Exit code of the program where this is the first problem.
    exit_code: int = 0


class DoctorReport(msgspec.Struct, frozen=True):
    """All checks: the object that `vramscope doctor --json` prints."""

    schema: Literal["vramscope.doctor/1"]
    version: str
    checks: tuple[Check, ...]
    exit_code: int


class Examination(msgspec.Struct, frozen=True):
    name: str
    examine: Callable[[], Iterable[Check]]
    deadline_s: float = 5.0
    # Exit code where the examination hangs.
    exit_code: int = EXIT_INTERNAL


class Patient:
    """Runs examinations; leaves one behind that hangs."""

    def __init__(self) -> None:
        # Whether a thread was left behind; the process must then be ended at once.
        self.is_hanging = False

    def examine(self, examination: Examination) -> list[Check]:
        """Return what an examination found; passing its deadline is a problem."""
        found: list[Check] = []
        thread = threading.Thread(target=_collect, args=(examination, found), daemon=True)
        thread.start()
        thread.join(examination.deadline_s)
        checks = list(found)
        if thread.is_alive():
            self.is_hanging = True
            checks.append(
                Check(
                    examination.name,
                    "problem",
                    f"no answer within {examination.deadline_s:g} s: a call hangs",
                    "see `dmesg`; if the NVIDIA driver hangs, reset the device or reboot",
                    examination.exit_code,
                )
            )
        return checks


def _collect(examination: Examination, found: list[Check]) -> None:
    try:
        # One at a time, so that a hang keeps what was found before.
        for check in examination.examine():
            found.append(check)
    except Exception as error:  # noqa: BLE001 - a check that fails is itself a finding
        found.append(
            Check(
                examination.name,
                "problem",
                f"this check failed: {type(error).__name__}: {error}",
                "please report this",
                EXIT_INTERNAL,
            )
        )


NVML_DISTRIBUTION = "nvidia-ml-py"


def examine_driver(proc: Path | None = None) -> Iterator[Check]:
    proc = locate_root() / "proc" if proc is None else proc
    kernel_version = read_kernel_driver_version(proc)
    if kernel_version is not None:
        yield Check("driver", "ok", f"NVIDIA kernel driver {kernel_version} is loaded")
    else:
        yield Check("driver", "note", f"no NVIDIA kernel driver is loaded ({proc}/driver/nvidia is absent)")
    library = NvmlLibrary(proc)
    try:
        library.open()
    except SourceUnavailableError as error:
        found, advice = _split(str(error))
        if isinstance(error, LibraryMissingError) and list_cards(proc.parent):
            yield Check("library", "note", f"{found} (there are GPUs that need none)")
        else:
            yield Check("library", "problem", found, advice, error.exit_code)
        return
    described = library.describe()
    library.close()
    yield Check(
        "library",
        "ok",
        f"{described.library_file or 'libnvidia-ml.so.1'}: NVML {described.nvml_version or '—'}, "
        f"driver {described.driver_version or '—'}, CUDA up to {described.cuda_version or '—'}",
    )


def examine_module() -> Iterator[Check]:
    """Check which distribution the imported module `pynvml` comes from; several have one."""
    from importlib.metadata import PackageNotFoundError, distributions, version

    import pynvml

    owners = {str(it.metadata["Name"]) for it in distributions() if _has_pynvml(it)}
    rivals = sorted(owners - {NVML_DISTRIBUTION})
    try:
        found = f"{pynvml.__file__} of {NVML_DISTRIBUTION} {version(NVML_DISTRIBUTION)}"
    except PackageNotFoundError:
        found = f"{pynvml.__file__}, {NVML_DISTRIBUTION} is not installed"
    if rivals:
        yield Check(
            "pynvml",
            "warning",
            f"{found}; a module of the same name also comes with {', '.join(rivals)}",
            f"pip uninstall {' '.join(rivals)}; pip install --force-reinstall {NVML_DISTRIBUTION}",
        )
    else:
        yield Check("pynvml", "ok", found)


def _has_pynvml(distribution: "Distribution") -> bool:
    """Search the lists of files as text: `packages_distributions` parses all of them, which takes longer."""
    names = (distribution.read_text("top_level.txt") or "").split()
    files = "\n" + (distribution.read_text("RECORD") or "")
    return "pynvml" in names or "\npynvml.py," in files or "\npynvml/" in files


def examine_device_files(dev: Path | None = None) -> Iterator[Check]:
    dev = locate_root() / "dev" if dev is None else dev
    paths = sorted(path for path in dev.glob("nvidia*") if path.is_char_device())
    denied = [path for path in paths if not os.access(path, os.R_OK | os.W_OK)]
    if denied:
        yield Check(
            "device files",
            "problem",
            f"this user cannot open {', '.join(map(str, denied))}",
            f"see `ls -l {dev}/nvidia*`; join the group that owns the files, usually video or render",
            AccessDeniedError.exit_code,
        )
    elif paths:
        files = "1 file" if len(paths) == 1 else f"{len(paths)} files"
        yield Check("device files", "ok", f"{files} {dev}/nvidia*, which this user can open")
    else:
        yield Check("device files", "note", f"there is no {dev}/nvidia*")


def examine_devices() -> Iterator[Check]:
    library = NvmlLibrary()
    try:
        library.open()
    except SourceUnavailableError:
        yield Check("devices", "note", "not checked: the driver library did not start")
        return
    listed_count = library.read_number("nvmlDeviceGetCount_v2") or 0
    library.close()
    source = NvmlSource(locate_root())
    try:
        readers = source.discover()
    except SourceUnavailableError as error:
        yield Check("devices", "problem", *_split(str(error)), error.exit_code)
        return
    yield from map(_examine_device, readers)
    missing_count = listed_count - sum(reader.identity.parent_uuid is None for reader in readers)
    if missing_count > 0:
        yield Check(
            "devices",
            "warning",
            f"{missing_count} of the devices that the driver lists did not answer",
            "see `dmesg | grep -i xid`; a lost device needs a reset or a reboot",
        )
    source.close()


def examine_other_devices(root: Path | None = None) -> Iterator[Check]:
    """Check the GPUs that NVML does not read; says nothing where there are none."""
    root = locate_root() if root is None else root
    if list_cards(root):
        yield from map(_examine_device, DrmSource(root).discover())


def examine_kernel_log(root: Path | None = None) -> Iterator[Check]:
    """Check what drivers of GPUs have reported since boot, as far as the kernel's log has it still."""
    from vramscope.analyzers.health.codes import explain_event
    from vramscope.engine.sources.kernel_log import KernelLog

    log = KernelLog(locate_root() if root is None else root, is_from_start=True)
    if not log.is_readable:
        yield Check(
            "kernel log",
            "note",
            "/dev/kmsg is not readable to this user: only NVML reports errors, as XIDs",
            "run the agent as root, or allow it with `sysctl kernel.dmesg_restrict=0`",
        )
        return
    events = log.read_all()
    log.close()
    severe = [it for it in events if explain_event(it).severity in ("high", "critical")]
    if not events:
        yield Check("kernel log", "ok", "no error of a GPU's driver is in it")
        return
    newest = (severe or events)[-1]
    age = format_age(max(0.0, time.time() - newest.time_s))
    where = "" if newest.pci_address is None else f" of the GPU at {newest.pci_address}"
    what = f"{newest.name}{where} {age} ago: {explain_event(newest).what}"
    found = f"{len(events)} errors of GPU drivers, the newest {'severe one ' if severe else ''}{what}"
    yield Check("kernel log", "warning" if severe else "note", found, "see `dmesg | grep -i -e nvrm -e drm`")


def examine_names(root: Path | None = None) -> Iterator[Check]:
    """Check what names pods on this node; says nothing on one without a kubelet."""
    from vramscope.engine.sources.owners.containers import POD_LINKS, read_pod_links
    from vramscope.engine.sources.owners.kubelet import ask_kubelet, read_checkpoint
    from vramscope.engine.sources.owners.watch import find_kubelet

    root = locate_root() if root is None else root
    kubelet = find_kubelet(root)
    links = len(read_pod_links(root))
    if kubelet is None and not links:
        return
    noun = "container" if links == 1 else "containers"
    found = [f"/{POD_LINKS} names {links:,} {noun}"] if links else []
    missing = [] if links else [f"/{POD_LINKS} names no container"]
    if kubelet is None:
        missing.append("there is no kubelet's folder: who was given a GPU is not known")
    else:
        try:
            found.append(f"the kubelet lists {len(ask_kubelet(kubelet)):,} allocations of devices")
        except SourceUnavailableError as error:
            missing.append(str(error))
        if read_checkpoint(kubelet) is None:
            missing.append("the kubelet's file of allocations cannot be read")
    yield Check(
        "names of pods",
        "ok" if not missing else "note" if links else "warning",
        "; ".join((*found, *missing)),
        "" if links else "mount /var/log/containers of the node, read-only, where the agent runs",
    )


def _examine_device(reader: DeviceReader) -> Check:
    identity = reader.identity
    label = f"{identity.index}" if identity.mig_index is None else f"{identity.index}:{identity.mig_index}"
    known = f"{identity.name or '—'}, {identity.kind}, {identity.uuid}"
    what = "unknown GPU" if identity.is_provisional else known
    try:
        memory = reader.read_memory()
    except DeviceError as error:
        return Check(f"device {label}", "warning", f"{what}: {error}")
    used = f"{format_bytes(memory.used_bytes)} of {format_bytes(memory.total_bytes)} used"
    faults = _find_faults(reader)
    if faults:
        found, advice = (list(it) for it in zip(*faults, strict=True))
        return Check(f"device {label}", "warning", f"{what}, {used}; {'; '.join(found)}", "; ".join(advice))
    return Check(f"device {label}", "ok", f"{what}, {used}")


def _choose_tools(reader: DeviceReader) -> DriverTools:
    """Return the tools of the driver that reads a device."""
    if not isinstance(reader, DrmReader):
        return driver_tools.NVIDIA
    if reader.driver == AMD:
        return driver_tools.AMD
    return driver_tools.INTEL if reader.driver in INTEL else driver_tools.OTHER


def _find_faults(reader: DeviceReader) -> list[tuple[str, str]]:
    """Return what is wrong with the hardware of a device, each with what to do."""
    try:
        reading = reader.read_hardware() if isinstance(reader, HardwareReader) else HardwareReading()
    except DeviceError:
        return []
    hardware = reading.hardware or DeviceHardware()
    reasons = () if reading.activity is None else reading.activity.throttle_reasons or ()
    faults: list[tuple[str, str]] = []
    tools = _choose_tools(reader)
    if hardware.ecc_uncorrected:
        found = f"{hardware.ecc_uncorrected:,} uncorrected memory errors since the driver was loaded"
        counts = "" if tools.memory_errors is None else f"`{tools.memory_errors}`, and "
        faults.append((found, f"see {counts}`{tools.log}` for the jobs they ended"))
    if hardware.is_repair_pending:
        found = "memory with errors is still in use"
        faults.append((found, f"when the GPU is idle, {tools.word_reset()}, or reboot"))
    if hardware.compute_mode == "prohibited":
        faults.append(("no process may compute on it", "`sudo nvidia-smi -c DEFAULT` allows it again"))
    heat = next((reason for reason in reasons if "thermal" in reason), None)
    if heat is not None:
        faults.append((f"its clocks are lowered: {heat}", "check its cooling and the airflow of the node"))
    elif "power brake" in reasons:
        faults.append(("its clocks are lowered: power brake", "check the power supply of the node"))
    return faults


def _split(sentence: str) -> tuple[str, str]:
    """Return an error's sentence as what was found and what to do."""
    found, _, advice = sentence.partition("; ")
    return found, advice


AGENT_ANSWERS_WITHIN_S = 2.0


def examine_runtime_folder() -> Iterator[Check]:
    """Check that the runtime folder is, or will be, private to this user."""
    folder = locate_runtime_folder()
    if not folder.exists() and not folder.is_symlink():
        yield Check("runtime folder", "ok", f"{folder} (will be made when an agent starts)")
        return
    try:
        check_private(folder)
    except RuntimeFolderError as error:
        found, _, advice = str(error).rpartition(": ")
        yield Check("runtime folder", "problem", found, advice, error.exit_code)
    else:
        yield Check("runtime folder", "ok", f"{folder} is private to this user")


def examine_agent() -> Iterator[Check]:
    folder = locate_runtime_folder()
    if not is_hub_alive(folder):
        yield Check("agent", "note", "no agent runs; `vramscope` starts one while it is open")
        return
    from vramscope.engine.viewer.client import connect

    try:
        with connect(folder, timeout_s=AGENT_ANSWERS_WITHIN_S) as client:
            hub = client.snapshot(timeout_s=0.0).hub
    except HubUnreachableError as error:
        advice = f"end process {holder_pid(folder)} and start `vramscope` again"
        yield Check("agent", "problem", str(error), advice, error.exit_code)
        return
    if hub is None:
        yield Check(
            "agent", "warning", f"process {holder_pid(folder)} serves {folder} but did not report its state"
        )
        return
    age = format_age(max(0.0, time.time() - hub.started_s))
    yield Check("agent", "ok", f"process {hub.pid}, version {hub.version}, up {age}")
    for worker in hub.workers:
        restarts = (
            f", {worker.restarts} restart{'s' if worker.restarts > 1 else ''}" if worker.restarts else ""
        )
        status = f"worker {worker.name}: {worker.state}{restarts}"
        is_well = worker.state in {"running", "starting"} and worker.reason is None
        yield Check("worker", "ok" if is_well else "warning", status, worker.reason or "")
    yield from _examine_alerts(hub)


def _examine_alerts(hub: "HubStatus") -> Iterator[Check]:
    for hook in hub.hooks:
        counts = f"{hook.delivered} delivered, {hook.failed} failed, {hook.dropped} dropped"
        is_well = hook.reason is None and not hook.dropped
        found = f"{hook.name} {hook.target}: {counts}"
        yield Check("alerts", "ok" if is_well else "warning", found, hook.reason or "")
    for note in hub.notes:
        yield Check("alerts", "warning", note)


def examine_zeromq() -> Iterator[Check]:
    """Check that ZeroMQ is installed and a message passes through a socket file."""
    import tempfile

    import zmq

    versions = f"pyzmq {zmq.__version__}, libzmq {zmq.zmq_version()}"
    if not zmq.has("ipc"):
        yield Check(
            "ZeroMQ", "problem", f"{versions}: built without ipc", "pip install --force-reinstall pyzmq", 1
        )
        return
    with tempfile.TemporaryDirectory(prefix="vramscope-") as folder, zmq.Context() as context:
        sender = context.socket(zmq.PUSH)
        receiver = context.socket(zmq.PULL)
        sender.linger = receiver.linger = 0
        receiver.bind(f"ipc://{folder}/check.sock")
        sender.connect(f"ipc://{folder}/check.sock")
        sender.send(b"ping")
        has_arrived = bool(receiver.poll(1000)) and receiver.recv() == b"ping"
        sender.close()
        receiver.close()
    if has_arrived:
        yield Check("ZeroMQ", "ok", f"{versions}: a message over ipc arrived")
    else:
        yield Check("ZeroMQ", "problem", f"{versions}: a message over ipc did not arrive within 1 s", "", 1)


def examine_sandbox(
    protection: "Protection | None" = None, environ: Mapping[str, str] | None = None
) -> Iterator[Check]:
    """Check what the kernel can forbid verbs that read files of others."""
    from vramscope.engine.sandbox import find_protection

    from .frame.sandbox import SWITCH, is_switched_off

    environ = os.environ if environ is None else environ
    found = find_protection() if protection is None else protection
    landlock = f"Landlock {found.landlock_version}" if found.landlock_version else "no Landlock"
    seccomp = "seccomp" if found.has_seccomp else "no seccomp filter for this machine"
    if is_switched_off(environ):
        yield Check("sandbox", "note", f"{SWITCH}={environ[SWITCH]} switches it off", f"unset {SWITCH}")
    elif found.is_whole:
        yield Check("sandbox", "ok", f"{landlock} and {seccomp} confine what reads files of others")
    else:
        yield Check(
            "sandbox",
            "note",
            f"{landlock}, {seccomp}: what reads files of others is not fully confined",
            "read files of strangers elsewhere, or with a kernel from 6.2 on that has Landlock switched on",
        )


def examine_attach() -> Iterator[Check]:
    """Check how the probe enters a process that already runs, by a try on a process of its own."""
    from vramscope.engine.jobs.attach import SINCE, can_trace, explain_scope
    from vramscope.engine.jobs.injector import try_on_own_process

    has_gdb = shutil.which("gdb") is not None
    spare = f"gdb, which a Python of unknown structure needs, is {'' if has_gdb else 'not '}installed"
    rule = None if can_trace() else explain_scope()
    if rule is not None:
        found, _, advice = rule.partition("; ")
        yield Check("attach", "warning", f"{found}", advice)
    elif sys.version_info >= SINCE:
        yield Check("attach", "ok", f"by sys.remote_exec for Python 3.14 and newer; {spare}")
    else:
        try:
            stopped_s = try_on_own_process()
        except VramscopeError as error:
            status: CheckStatus = "note" if has_gdb else "warning"
            advice = "" if has_gdb else "install gdb, or start jobs with `vramscope run`"
            yield Check("attach", status, f"without a debugger it fails here ({error}); {spare}", advice)
        else:
            found = (
                f"without a debugger, tried on a process of Python {platform.python_version()}, which was "
                f"stopped for {stopped_s * 1e3:.1f} ms; {spare}"
            )
            yield Check("attach", "ok", found)


DISTRIBUTIONS = ("textual", "rich", "msgspec", "pyzmq", "psutil", "nvidia-ml-py", "shtab")
_CONTAINER_MARKS = {"/.dockerenv": "Docker", "/run/.containerenv": "Podman"}


def examine_versions() -> Iterator[Check]:
    from importlib.metadata import PackageNotFoundError, version

    yield Check(
        "vramscope",
        "ok",
        f"{__version__}, Python {platform.python_version()} ({sys.executable}), "
        f"Linux {platform.release()}, {platform.machine()}",
    )
    versions = []
    missing = []
    for name in DISTRIBUTIONS:
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    yield Check("packages", "ok", ", ".join(versions))
    if missing:
        yield Check(
            "packages", "warning", f"not installed: {', '.join(missing)}", f"pip install {' '.join(missing)}"
        )


def examine_host(proc: Path = Path("/proc")) -> Iterator[Check]:
    host = HostReader().read()
    limit = "limit of the cgroup" if host.limit == "cgroup" else "of the host"
    yield Check("host memory", "ok", f"{format_bytes(host.total_bytes)} ({limit})")
    kind = _name_container()
    if has_own_pids(proc):
        where = kind or "a separate pid namespace"
        yield Check(
            "container",
            "note",
            f"running inside {where}: processes outside it show only their pid",
            "start the container with --pid=host to see their users and commands",
        )
    elif kind is not None:
        yield Check("container", "ok", f"running inside {kind}, with access to the host's processes")


def examine_settings(arguments: Namespace) -> Iterator[Check]:
    try:
        loaded = load_configuration(arguments)
    except VramscopeError as error:
        yield Check("settings", "problem", str(error), "correct or remove it", error.exit_code)
        return
    files = ", ".join(map(str, loaded.files)) or "no settings file"
    origins = ", ".join(f"{key} from {origin}" for key, origin in sorted(loaded.origins.items()))
    yield Check("settings", "ok", f"{files}; {origins or 'all settings have their defaults'}")
    unknown = list_unknown_variables(os.environ)
    if unknown:
        yield Check(
            "settings", "warning", f"unknown variables: {', '.join(unknown)}", "correct or unset them"
        )


def examine_plugins() -> Iterator[Check]:
    """Check that every source and analyzer offered by a plug-in can be made."""
    for group in ("vramscope.sources", "vramscope.analyzers", "vramscope.inquirers"):
        kind = group.removeprefix("vramscope.")
        names = [entry_point.name for entry_point in find_entry_points(group)]
        yield Check(kind, "ok", f"{', '.join(names) or 'none'} by entry point {group}")
        for note in make_plugins(group).notes:
            yield Check(kind, "warning", note, "update or uninstall that distribution")


def _name_container(root: Path = Path("/")) -> str | None:
    for mark, name in _CONTAINER_MARKS.items():
        if (root / mark.lstrip("/")).exists():
            return name
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return "Kubernetes"
    if os.environ.get("APPTAINER_CONTAINER") or os.environ.get("SINGULARITY_CONTAINER"):
        return "Apptainer"
    return os.environ.get("container")  # noqa: SIM112 - as systemd and Podman spell it


VERSION_WITHIN_S = 2.0


def examine_terminal(environ: Mapping[str, str] | None = None) -> Iterator[Check]:
    environ = os.environ if environ is None else environ
    size = shutil.get_terminal_size(fallback=(0, 0))
    where = f"TERM={environ.get('TERM', '')}, {size.columns}x{size.lines}"
    try:
        abilities = read_abilities(
            environ, is_input_tty=_is_tty(sys.stdin), is_output_tty=_is_tty(sys.stdout)
        )
    except UsageError as error:
        found, _, advice = str(error).partition("; ")
        yield Check("terminal", "note", f"{where}: {found}", advice)
    else:
        characters = "ASCII only" if abilities.is_ascii else "UTF-8"
        found = f"{where}, colours {abilities.color_depth}, {characters}"
        if abilities.reason:
            yield Check("terminal", "warning", f"{found}: {abilities.reason}")
        else:
            yield Check("terminal", "ok", found)
    if environ.get("TMUX"):
        yield Check("multiplexer", "ok", f"inside {_ask_version('tmux', '-V')}")
    elif environ.get("STY"):
        yield Check("multiplexer", "ok", f"inside {_ask_version('screen', '-v')}")


def _ask_version(program: str, flag: str) -> str:
    try:
        answer = subprocess.run(
            [program, flag], capture_output=True, text=True, timeout=VERSION_WITHIN_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return f"{program} of unknown version"
    return answer.stdout.strip().partition("\n")[0] or f"{program} of unknown version"


def _is_tty(stream: object) -> bool:
    return bool(getattr(stream, "isatty", bool)())


def list_examinations(arguments: Namespace) -> list[Examination]:
    """Return the examinations; the first problem decides the exit code."""
    return [
        Examination("vramscope", examine_versions),
        Examination("driver", examine_driver, exit_code=5),
        Examination("pynvml", examine_module),
        Examination("device files", examine_device_files),
        Examination("devices", examine_devices, exit_code=5),
        Examination("other devices", examine_other_devices, exit_code=5),
        Examination("kernel log", examine_kernel_log),
        Examination("names of pods", examine_names),
        Examination("host memory", examine_host),
        Examination("runtime folder", examine_runtime_folder),
        Examination("agent", examine_agent),
        Examination("ZeroMQ", examine_zeromq),
        Examination("sandbox", examine_sandbox),
        Examination("attach", examine_attach, deadline_s=30.0),
        Examination("plug-ins", examine_plugins),
        Examination("settings", lambda: examine_settings(arguments)),
        Examination("terminal", examine_terminal),
    ]
