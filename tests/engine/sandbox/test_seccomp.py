"""The filters of system calls, run here as the kernel runs them, for both machines."""

import errno
import re
import struct
from pathlib import Path
from typing import get_args

import pytest

from vramscope.engine.sandbox.seccomp import NUMBERS, Machine, assemble_for_decoding, assemble_for_reading

ALLOWED = 0
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
MACHINES = get_args(Machine)


def decide(program: bytes, machine: str, call: str | int, *arguments: int) -> int:
    """Run a filter over one call; return the error that the call gets, 0 where it is let through."""
    place = 0 if machine == "x86_64" else 1
    number = call if isinstance(call, int) else NUMBERS[call][place]
    assert number is not None
    words = struct.pack("=IIQ6Q", number, ARCHITECTURES[machine], 0, *[*arguments, 0, 0, 0, 0, 0, 0][:6])
    lines = list(struct.iter_unpack("=HBBI", program))
    at = held = 0
    while True:
        code, if_true, if_false, value = lines[at]
        at += 1
        if code == 0x20:
            (held,) = struct.unpack_from("=I", words, value)
        elif code == 0x06:
            return ALLOWED if value == 0x7FFF0000 else value & 0xFFFF
        else:
            is_met = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[code]
            at += if_true if is_met else if_false


@pytest.mark.parametrize("machine", MACHINES)
class TestReading:
    def decide(self, machine: Machine, call: str | int, *arguments: int) -> int:
        return decide(assemble_for_reading(machine, signals_of=None), machine, call, *arguments)

    @pytest.mark.parametrize(
        "call",
        ["socket", "connect", "sendmsg", "ptrace", "io_uring_setup", "bpf", "unshare", "keyctl", "fchown"],
    )
    def test_what_reaches_out_is_refused(self, machine: Machine, call: str) -> None:
        assert self.decide(machine, call) == errno.EPERM

    @pytest.mark.parametrize("call", ["read", "write", "mmap", "futex", "kill"])
    def test_what_a_program_lives_by_is_let_through(self, machine: Machine, call: str) -> None:
        assert self.decide(machine, call, 77) == ALLOWED

    def test_a_pair_of_sockets_may_talk_to_itself_only(self, machine: Machine) -> None:
        assert self.decide(machine, "sendto", 3, 0, 0, 0, 0) == ALLOWED
        for address in (0x1000, 0x7F00_0000_0000):
            assert self.decide(machine, "sendto", 3, 0, 0, 0, address) == errno.EPERM

    def test_nothing_is_typed_into_the_terminal_but_its_size_is_asked(self, machine: Machine) -> None:
        assert self.decide(machine, "ioctl", 0, 0x5412) == errno.EPERM
        assert self.decide(machine, "ioctl", 0, 0x5413) == ALLOWED

    def test_threads_and_children_start_and_namespaces_do_not(self, machine: Machine) -> None:
        assert self.decide(machine, "clone", 0x3D0F00) == ALLOWED  # as pthread_create
        assert self.decide(machine, "clone", 0x1200011) == ALLOWED  # as fork
        assert self.decide(machine, "clone", 0x10000011) == errno.EPERM
        assert self.decide(machine, "clone3") == errno.ENOSYS

    def test_only_this_process_gets_signals_where_landlock_does_not_see_to_it(self, machine: Machine) -> None:
        program = assemble_for_reading(machine, signals_of=77)
        for call in ("kill", "tgkill"):
            assert decide(program, machine, call, 77, 77) == ALLOWED
            assert decide(program, machine, call, 78, 78) == errno.EPERM

    def test_calls_of_another_abi_are_refused(self, machine: Machine) -> None:
        program = assemble_for_reading(machine, signals_of=None)
        for other in MACHINES:
            number = NUMBERS["read"][MACHINES.index(machine)]
            assert number is not None
            assert decide(program, other, number) == (ALLOWED if other == machine else errno.EPERM)
        if machine == "x86_64":
            assert decide(program, machine, 0x4000_0000) == errno.EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_a_decoder_reads_and_writes_what_is_open_and_no_more(machine: Machine) -> None:
    program = assemble_for_decoding(machine)
    for needed in ("read", "write", "mmap", "brk", "futex", "exit_group"):
        assert decide(program, machine, needed) == ALLOWED
    openat = 257 if machine == "x86_64" else 56
    for call in (openat, "socket", "clone", "clone3", "kill", "ptrace", "ioctl", "fchmod", "sendto"):
        assert decide(program, machine, call) == errno.EPERM


@pytest.mark.parametrize(
    ("header", "place"),
    [("x86_64-linux-gnu/asm/unistd_64.h", 0), ("asm-generic/unistd.h", 1)],
    ids=["x86-64", "AArch64"],
)
def test_the_numbers_of_calls_are_those_of_the_kernels_headers(header: str, place: int) -> None:
    path = Path("/usr/include") / header
    if not path.exists():
        pytest.skip(f"{path} is not installed")
    defined: dict[str, str] = dict(re.findall(r"#define (__NR\w*_\w+)\s+(\w+)", path.read_text()))
    known = {}
    for name, numbers in NUMBERS.items():
        value = defined.get(f"__NR_{name}", "")
        value = defined.get(value, value)  # `__NR_fstat` is `__NR3264_fstat`
        if value.isdecimal():
            known[name] = (int(value), numbers[place])
    assert {name: pair for name, pair in known.items() if pair[0] != pair[1]} == {}
    assert len(known) > 100
