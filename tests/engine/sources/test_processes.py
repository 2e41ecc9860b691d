"""Who a pid is: told from what /proc shows, and honest where it shows nothing."""

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.sources.conftest import SteppedClock
from tests.engine.sources.machine import BOOT_S, FakeMachine
from vramscope.engine.model import ProcessReading
from vramscope.engine.sources.cgroups import Owner, find_container, find_owner
from vramscope.engine.sources.processes import CHECK_INTERVAL_S, FORGET_AFTER_S, ProcessTable

ID = "3f4e" + "0123456789ab" * 5
SHORT = ID[:12]
PID = 4242


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path / "root")


@pytest.fixture
def container(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path / "root", is_container=True)


def make_table(machine: FakeMachine, hidden: frozenset[int] = frozenset()) -> ProcessTable:
    """Return a table that looks anew on every call: each reading of its clock is an interval later."""
    seconds = itertools.count(1000.0, CHECK_INTERVAL_S)
    return ProcessTable(machine.root, lambda: next(seconds), is_hidden=lambda pid: pid in hidden)


def test_a_process_of_this_machine_is_known_by_user_command_and_start(machine: FakeMachine) -> None:
    machine.add_process(PID, start_ticks=10 * os.sysconf("SC_CLK_TCK"))
    assert make_table(machine).read(PID, 7) == ProcessReading(
        pid=PID,
        user="root",
        command="python train.py",
        used_bytes=7,
        started_s=BOOT_S + 10.0,
        parent_pid=1,
        resident_bytes=0,
        threads=1,
    )


def test_what_a_process_uses_of_the_host(machine: FakeMachine, stepped_clock: SteppedClock) -> None:
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    table = ProcessTable(machine.root, stepped_clock, is_hidden=lambda pid: False)
    machine.add_process(PID, parent=77, cpu_ticks=1000, threads=9, resident_pages=512)
    first = table.read(PID, None, "graphics", sm_percent=5.0, memory_bandwidth_percent=2.0)
    assert (first.parent_pid, first.threads, first.kind) == (77, 9, "graphics")
    assert first.resident_bytes == 512 * os.sysconf("SC_PAGE_SIZE")
    assert (first.sm_percent, first.memory_bandwidth_percent, first.cpu_percent) == (5.0, 2.0, None)
    stepped_clock.now_s += 4.0
    machine.add_process(PID, cpu_ticks=1000 + 6 * ticks_per_s)
    assert table.read(PID, None).cpu_percent == 150.0
    assert table.read(PID, None).cpu_percent == 150.0, "one look serves all devices of a round"


def test_cpu_time_of_a_reused_pid_is_not_that_of_the_one_before(
    machine: FakeMachine, stepped_clock: SteppedClock
) -> None:
    table = ProcessTable(machine.root, stepped_clock, is_hidden=lambda pid: False)
    machine.add_process(PID, cpu_ticks=1000)
    table.read(PID, None)
    stepped_clock.now_s += 4.0
    machine.add_process(PID, cpu_ticks=5000, start_ticks=9999)
    assert table.read(PID, None).cpu_percent is None


def test_a_real_process_is_read_from_the_real_proc() -> None:
    code = "print(flush=True);input()"
    with subprocess.Popen(
        [sys.executable, "-c", code, "a b"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()  # before that it may still be the fork of this process
        reading = ProcessTable().read(child.pid, None)
        child.communicate()
    assert reading.command == f"{sys.executable} -c {code} a b"
    assert reading.location in ("here", "container")
    assert reading.started_s is not None
    assert abs(reading.started_s - time.time()) < 60


def test_a_user_without_a_name_is_shown_by_number(machine: FakeMachine) -> None:
    machine.add_process(PID, uid=3_999_999_999)
    assert make_table(machine).read(PID, None).user == "3999999999"


def test_a_name_with_brackets_and_spaces_does_not_confuse(machine: FakeMachine) -> None:
    machine.add_process(PID, name="a) S (b c", command="")
    reading = make_table(machine).read(PID, None)
    assert (reading.command, reading.location) == ("[a) S (b c]", "here")


def test_control_characters_do_not_reach_the_terminal(machine: FakeMachine) -> None:
    machine.add_process(PID, command="evil\0\x1b[2J\n\0")
    assert make_table(machine).read(PID, None).command == "evil �[2J "


def test_a_reused_pid_is_another_process(machine: FakeMachine) -> None:
    table = make_table(machine)
    machine.add_process(PID, command="first\0")
    assert table.read(PID, None).command == "first"
    machine.add_process(PID, command="second\0", start_ticks=9999)
    assert table.read(PID, None).command == "second"


def test_a_process_that_runs_another_program_is_read_anew(machine: FakeMachine) -> None:
    table = make_table(machine)
    machine.add_process(PID, command="bash\0run.sh\0", name="bash")
    table.read(PID, None)
    machine.add_process(PID, command="python\0train.py\0", name="python")
    assert table.read(PID, None).command == "python train.py"


def test_what_stays_the_same_is_not_read_again(machine: FakeMachine) -> None:
    table = make_table(machine)
    machine.add_process(PID)
    first = table.read(PID, 1)
    machine.write(f"proc/{PID}/cmdline", "changed\0")
    assert table.read(PID, 1).command == first.command


def test_one_look_at_a_pid_serves_all_devices_of_a_round(
    machine: FakeMachine, stepped_clock: SteppedClock
) -> None:
    table = ProcessTable(machine.root, stepped_clock, is_hidden=lambda pid: False)
    machine.add_process(PID)
    table.read(PID, 1)
    machine.end_process(PID)
    assert (table.read(PID, 2).location, table.read(PID, 2).used_bytes) == ("here", 2)
    stepped_clock.now_s += CHECK_INTERVAL_S
    assert table.read(PID, 2).location == "gone"


def test_the_end_of_a_process_of_this_machine_is_seen_at_the_next_look(stepped_clock: SteppedClock) -> None:
    table = ProcessTable(clock_s=stepped_clock)
    with subprocess.Popen(["sleep", "60"]) as child:
        assert table.read(child.pid, 5).location in ("here", "container")
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # its parent has not collected it yet
        stepped_clock.now_s += CHECK_INTERVAL_S
        assert table.read(child.pid, 5).location == "gone"


def test_a_number_that_can_be_no_process_of_this_machine_is_shown_as_gone(
    stepped_clock: SteppedClock,
) -> None:
    assert ProcessTable(clock_s=stepped_clock).read(2**32 - 1, 5).location in ("gone", "outside")


def test_memory_of_a_process_that_exited_is_shown_with_who_it_was(machine: FakeMachine) -> None:
    table = make_table(machine)
    machine.add_process(PID)
    table.read(PID, 5)
    machine.end_process(PID)
    gone = table.read(PID, 5)
    assert (gone.location, gone.command, gone.used_bytes) == ("gone", "python train.py", 5)
    assert table.read(PID + 1, 5) == ProcessReading(pid=PID + 1, used_bytes=5, location="gone")


def test_of_an_older_list_those_who_have_ended_since_are_dropped(
    machine: FakeMachine, stepped_clock: SteppedClock
) -> None:
    table = ProcessTable(machine.root, stepped_clock, lambda _: False)
    for pid in (10, 11, 12, 13):
        machine.add_process(pid)
    machine.end_process(13)
    listed = tuple(table.read(pid, 2**30) for pid in (10, 11, 12, 13))
    machine.end_process(11)
    machine.add_process(12, start_ticks=2000)
    stepped_clock.now_s += 60.0
    assert [(it.pid, it.location) for it in table.drop_ended(listed)] == [(10, "here"), (13, "gone")]


def test_a_zombie_is_gone(machine: FakeMachine) -> None:
    table = make_table(machine)
    machine.add_process(PID)
    table.read(PID, 5)
    machine.add_process(PID, state="Z", command="")
    assert table.read(PID, 5).location == "gone"


def test_a_process_hidden_from_this_user_is_not_called_gone(machine: FakeMachine) -> None:
    table = make_table(machine, hidden=frozenset({PID}))
    assert table.read(PID, 5) == ProcessReading(pid=PID, used_bytes=5, location="here")


def test_a_process_that_is_long_gone_is_forgotten(machine: FakeMachine, stepped_clock: SteppedClock) -> None:
    table = ProcessTable(machine.root, stepped_clock, is_hidden=lambda pid: False)
    machine.add_process(PID)
    machine.add_process(PID + 1)
    table.read(PID, 1)
    machine.end_process(PID)
    for _ in range(3):
        stepped_clock.now_s += FORGET_AFTER_S + 1
        table.read(PID + 1, 1)
    assert table.read(PID, 1).command is None
    assert table.read(PID + 1, 1).command == "python train.py"


@pytest.mark.parametrize(
    ("cgroup", "expected"),
    [
        (f"0::/system.slice/docker-{ID}.scope", SHORT),
        (f"12:memory:/docker/{ID}\n0::/docker/{ID}", SHORT),
        (f"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope", SHORT),
        (f"4:memory:/kubepods/besteffort/podabc-1/{ID}", SHORT),
        (f"0::/machine.slice/libpod-{ID}.scope/container", SHORT),
        (f"0::/kubepods.slice/crio-{ID}.scope", SHORT),
        ("0::/lxc.payload.gpubox/init.scope", "lxc gpubox"),
        ("8:memory:/lxc/gpubox", "lxc gpubox"),
        ("0::/machine.slice/systemd-nspawn@tree.service/payload", "machine tree"),
        ("0::/system.slice/slurmstepd.scope/job_812/step_0/user/task_0", "slurm job 812"),
        ("9:memory:/slurm/uid_1000/job_77/step_batch", "slurm job 77"),
        ("0::/user.slice/user-1000.slice/session-2.scope", None),
        (f"0::/machine.slice/libpod-conmon-{ID}.scope", None),
        ("0::/system.slice/docker.service", None),
        ("0::/", None),
        ("", None),
    ],
)
def test_containers_are_named_by_their_control_group(
    machine: FakeMachine, cgroup: str, expected: str | None
) -> None:
    assert find_container(cgroup) == expected
    machine.add_process(PID, cgroup=cgroup)
    reading = make_table(machine).read(PID, 1)
    assert (reading.container, reading.location) == (expected, "here" if expected is None else "container")
    assert reading.command == "python train.py"


UID = "8a7b1c2d-3e4f-5a6b-7c8d-9e0f1a2b3c4d"


@pytest.mark.parametrize(
    ("cgroup", "expected"),
    [
        (
            f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice"
            f"/cri-containerd-{ID}.scope",
            Owner(SHORT, UID),
        ),
        (f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/crio-{ID}.scope", Owner(SHORT, UID)),
        (f"4:memory:/kubepods/besteffort/pod{UID}/{ID}\n0::/", Owner(SHORT, UID)),
        (f"0::/kubepods/pod{ID[:32]}/{ID}", Owner(SHORT, ID[:32])),
        (
            f"0::/kind/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UID.replace('-', '_')}.slice"
            f"/cri-containerd-{ID}.scope",
            Owner(SHORT, UID),
        ),
        (
            "0::/system.slice/slurmstepd.scope/job_812/step_0/user/task_0",
            Owner("slurm job 812", None, "812", "0"),
        ),
        (
            "0::/system.slice/node01_slurmstepd.scope/job_9/step_extern/user/task_special",
            Owner("slurm job 9", None, "9", "extern"),
        ),
        (
            "9:memory:/slurm/uid_1000/job_77/step_batch\n8:devices:/slurm/uid_1000/job_77",
            Owner("slurm job 77", None, "77", "batch"),
        ),
        ("9:memory:/slurm_node01/uid_1000/job_77", Owner("slurm job 77", None, "77", None)),
        ("0::/user.slice/user-1000.slice/session-2.scope", Owner()),
        ("0::/kubepods.slice/kubepods-podnot_a_uid.slice", Owner()),
        ("0::/home/job_5/step_0", Owner()),
        ("", Owner()),
    ],
)
def test_pods_and_jobs_are_named_by_their_control_group(
    machine: FakeMachine, cgroup: str, expected: Owner
) -> None:
    assert find_owner(cgroup) == expected
    machine.add_process(PID, cgroup=cgroup)
    reading = make_table(machine).read(PID, 1)
    assert (reading.pod, reading.slurm_job, reading.slurm_step) == expected[1:]


_PIECE = st.sampled_from(
    [
        *(
            "0::",
            "/",
            "kubepods",
            "-pod",
            "/pod",
            UID,
            UID.replace("-", "_"),
            ID,
            ".slice",
            ".scope",
            "slurm",
        ),
        *("job_", "step_", "1" * 20, "cri-containerd-", "\n", "..", "\x00"),
    ]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(_PIECE, st.text(max_size=4)), max_size=30))
def test_control_groups_of_any_content_name_owners_of_the_known_forms(pieces: list[str]) -> None:
    owner = find_owner("".join(pieces))
    assert owner.pod is None or len(owner.pod.replace("-", "")) == 32
    assert owner.slurm_job is None or (owner.slurm_job.isdigit() and len(owner.slurm_job) <= 12)
    assert owner.slurm_step is None or len(owner.slurm_step) <= 16


def test_a_nested_pid_namespace_is_a_container_of_unknown_name(machine: FakeMachine) -> None:
    machine.add_process(PID, namespaced_pids=f"{PID}\t7")
    reading = make_table(machine).read(PID, 1)
    assert (reading.location, reading.container) == ("container", None)


def test_a_process_of_our_own_container_is_here(machine: FakeMachine) -> None:
    machine.write("proc/self/cgroup", f"0::/docker/{ID}\n")
    machine.add_process(PID, cgroup=f"0::/docker/{ID}\n")
    assert make_table(machine).read(PID, 1).location == "here"


def test_inside_a_container_an_unknown_pid_is_outside(container: FakeMachine) -> None:
    assert make_table(container).read(PID, 5) == ProcessReading(pid=PID, used_bytes=5, location="outside")


def test_inside_a_container_our_own_process_that_exited_is_gone(container: FakeMachine) -> None:
    table = make_table(container)
    container.add_process(PID)
    assert table.read(PID, 1).location == "here"
    container.end_process(PID)
    assert table.read(PID, 1).location == "gone"


def test_inside_a_container_a_namesake_is_not_taken_for_the_hosts_process(container: FakeMachine) -> None:
    container.write("dev/nvidiactl", "")
    table = make_table(container)
    container.add_process(PID, opened=("/dev/null", "/dev/pts/0"))
    container.add_process(PID + 1, opened=("/dev/nvidiactl", "/dev/nvidia0"))
    assert table.read(PID, 1) == ProcessReading(pid=PID, used_bytes=1, location="outside")
    assert table.read(PID + 1, 1).command == "python train.py"


def test_on_the_host_a_process_whose_open_files_may_not_be_seen_is_believed(machine: FakeMachine) -> None:
    machine.write("dev/nvidiactl", "")
    machine.add_process(PID)
    assert make_table(machine).read(PID, 1).command == "python train.py"


def test_a_damaged_proc_entry_is_no_error(machine: FakeMachine) -> None:
    machine.write(f"proc/{PID}/stat", "nonsense")
    assert make_table(machine).read(PID, 1).location == "gone"
    machine.add_process(PID)
    for name in ("status", "cmdline", "cgroup"):
        (machine.proc / str(PID) / name).unlink()
    reading = make_table(machine).read(PID, 1)
    assert (reading.user, reading.command, reading.location) == (None, None, "here")
