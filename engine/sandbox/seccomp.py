"""Seccomp: a filter of system calls, assembled here for x86-64 and AArch64.

The filter is a program of classic BPF over `struct seccomp_data` (`linux/seccomp.h`, `linux/filter.h`). The
numbers of calls are those of the kernel's tables: `asm/unistd_64.h`, and `asm-generic/unistd.h` for AArch64.
"""

import ctypes
import errno
import struct
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

Machine = Literal["x86_64", "aarch64"]
_ARCHITECTURES: dict[str, int] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# Calls of the x32 ABI have this bit, and would pass under other numbers.
_X32_BIT = 0x4000_0000

_SET_SECCOMP = 22
_GET_SECCOMP = 21
_MODE_FILTER = 2
_ALLOW = 0x7FFF_0000
_ERRNO = 0x0005_0000

# Offsets in `struct seccomp_data` of a little-endian machine.
_NUMBER = 0
_ARCHITECTURE = 4
_ARGUMENTS = 16
_LOAD = 0x20
_RETURN = 0x06
_JUMP_EQUAL = 0x15
_JUMP_AT_LEAST = 0x35
_JUMP_ANY_BIT = 0x45

# Name: number on x86-64, and on AArch64; None where there is no such call.
NUMBERS: dict[str, tuple[int, int | None]] = {
    "accept": (43, 202),
    "accept4": (288, 242),
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bind": (49, 200),
    "bpf": (321, 280),
    "brk": (12, 214),
    "chmod": (90, None),
    "chown": (92, None),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_gettime": (228, 113),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "close": (3, 57),
    "connect": (42, 203),
    "delete_module": (176, 106),
    "exit": (60, 93),
    "exit_group": (231, 94),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "finit_module": (313, 273),
    "fremovexattr": (199, 16),
    "fsconfig": (431, 431),
    "fsetxattr": (190, 7),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "fstat": (5, 80),
    "futex": (202, 98),
    "futimesat": (261, None),
    "getpid": (39, 172),
    "getrandom": (318, 278),
    "getrusage": (98, 165),
    "gettid": (186, 178),
    "gettimeofday": (96, 169),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioctl": (16, 29),
    "ioperm": (173, None),
    "iopl": (172, None),
    "ioprio_set": (251, 30),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "kill": (62, 129),
    "lchown": (94, None),
    "listen": (50, 201),
    "lremovexattr": (198, 15),
    "lseek": (8, 62),
    "lsetxattr": (189, 6),
    "madvise": (28, 233),
    "migrate_pages": (256, 238),
    "mmap": (9, 222),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "mprotect": (10, 226),
    "mq_open": (240, 180),
    "mremap": (25, 216),
    "msgget": (68, 186),
    "msgrcv": (70, 188),
    "msgsnd": (69, 189),
    "munmap": (11, 215),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pivot_root": (155, 41),
    "pread64": (17, 67),
    "prlimit64": (302, 261),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "read": (0, 63),
    "readv": (19, 65),
    "reboot": (169, 142),
    "removexattr": (197, 14),
    "request_key": (249, 218),
    "restart_syscall": (219, 128),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigqueueinfo": (129, 138),
    "rt_sigreturn": (15, 139),
    "rt_tgsigqueueinfo": (297, 240),
    "sched_getaffinity": (204, 123),
    "sched_yield": (24, 124),
    "semget": (64, 190),
    "semop": (65, 193),
    "sendmmsg": (307, 269),
    "sendmsg": (46, 211),
    "sendto": (44, 206),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "setpriority": (141, 140),
    "settimeofday": (164, 170),
    "setxattr": (188, 5),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmget": (29, 194),
    "sigaltstack": (131, 132),
    "socket": (41, 198),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "tgkill": (234, 131),
    "tkill": (200, 130),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "utime": (132, None),
    "utimensat": (280, 88),
    "utimes": (235, None),
    "write": (1, 64),
    "writev": (20, 66),
}

# What reading, computing and printing never need: what reaches other machines, processes, users, the kernel.
_SOCKETS = "socket connect bind listen accept accept4 sendmsg sendmmsg"
_PROCESSES = (
    "ptrace process_vm_readv process_vm_writev process_madvise process_mrelease kcmp pidfd_open pidfd_getfd "
    "pidfd_send_signal tkill rt_sigqueueinfo rt_tgsigqueueinfo move_pages migrate_pages setpriority "
    "ioprio_set shmget shmat shmctl msgget msgsnd msgrcv semget semop mq_open"
)
# Landlock does not cover who may open a file, nor its times.
_OWNERSHIP = (
    "chmod fchmodat fchmodat2 chown fchown lchown fchownat setxattr lsetxattr fsetxattr removexattr "
    "lremovexattr fremovexattr utime utimes futimesat utimensat name_to_handle_at open_by_handle_at"
)
_KERNEL = (
    "io_uring_setup io_uring_enter io_uring_register bpf perf_event_open userfaultfd keyctl add_key "
    "request_key mount umount2 move_mount fsopen fsconfig fsmount fspick open_tree mount_setattr pivot_root "
    "chroot unshare setns init_module finit_module delete_module kexec_load kexec_file_load reboot swapon "
    "swapoff acct settimeofday clock_settime adjtimex clock_adjtime sethostname setdomainname syslog "
    "quotactl quotactl_fd iopl ioperm modify_ldt personality"
)
# All that decoding from an open file to an open pipe needs.
_DECODING = (
    "read readv pread64 write writev lseek fstat close mmap munmap mremap mprotect madvise brk futex "
    "rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack getpid gettid clock_gettime gettimeofday getrandom "
    "getrusage sched_yield sched_getaffinity restart_syscall exit exit_group"
)
_NEW_NAMESPACES = 0x7E02_0000
_TYPE_INTO_TERMINAL = 0x5412
_STEER_CONSOLE = 0x541C
_SET_ID_BITS = 0o7000


class _Check(NamedTuple):
    """Refuses a call for one of its arguments."""

    call: str
    argument: int
    # Refused where any of these bits is set, where it equals this, or where it is anything else.
    test: Literal["bits", "equals", "differs"]
    value: int
    # Bytes from the beginning of the argument: 4 for its upper half.
    offset: int = 0


def assemble_for_reading(machine: Machine, *, signals_of: int | None) -> bytes:
    """Return the filter of a verb: everything but what reaches out of the process.

    Programs may be started: Landlock says which, and this filter is theirs too.

    Args:
        signals_of: The only process that may get signals; None where Landlock watches over them.
    """
    refused = f"{_SOCKETS} {_PROCESSES} {_OWNERSHIP} {_KERNEL}"
    checks = [
        # The address of a datagram: a pair of sockets may talk to itself, as event loops do, and no further.
        _Check("sendto", 4, "differs", 0),
        _Check("sendto", 4, "differs", 0, 4),
        _Check("ioctl", 1, "equals", _TYPE_INTO_TERMINAL),
        _Check("ioctl", 1, "equals", _STEER_CONSOLE),
        _Check("clone", 0, "bits", _NEW_NAMESPACES),
        _Check("fchmod", 1, "bits", _SET_ID_BITS),
        _Check("prlimit64", 0, "differs", 0),
    ]
    if signals_of is not None:
        checks += [_Check(call, 0, "differs", signals_of) for call in ("kill", "tgkill")]
    return _assemble(
        machine,
        [
            *_answer(machine, refused.split(), _ERRNO | errno.EPERM),
            # The library of C then starts threads by `clone`, whose flags can be looked at.
            *_answer(machine, ["clone3"], _ERRNO | errno.ENOSYS),
            *(line for check in checks for line in _refuse_argument(machine, check)),
        ],
        _ALLOW,
    )


def assemble_for_decoding(machine: Machine) -> bytes:
    """Return the filter of a decoder: reading what is open, computing, and writing what is open."""
    return _assemble(machine, _answer(machine, _DECODING.split(), _ALLOW), _ERRNO | errno.EPERM)


def is_available() -> bool:
    return int(ctypes.CDLL(None).prctl(_GET_SECCOMP, 0, 0, 0, 0)) >= 0


def install(program: bytes) -> bool:
    """Filter the calls of this thread, those that it starts, and its children; it gave up privileges."""
    lines = ctypes.create_string_buffer(program, len(program))
    # `struct sock_fprog`: the number of instructions, and where they are.
    given = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(lines)))
    place = ctypes.c_void_p(ctypes.addressof(given))
    return int(ctypes.CDLL(None).prctl(_SET_SECCOMP, _MODE_FILTER, place, 0, 0)) == 0


def _assemble(machine: Machine, lines: Sequence[bytes], otherwise: int) -> bytes:
    head = [
        _line(_LOAD, _ARCHITECTURE),
        _line(_JUMP_EQUAL, _ARCHITECTURES[machine], 1, 0),
        _line(_RETURN, _ERRNO | errno.EPERM),
        _line(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        head += [_line(_JUMP_AT_LEAST, _X32_BIT, 0, 1), _line(_RETURN, _ERRNO | errno.EPERM)]
    return b"".join([*head, *lines, _line(_RETURN, otherwise)])


def _answer(machine: Machine, calls: Iterable[str], verdict: int) -> list[bytes]:
    numbers = (_find_number(machine, call) for call in calls)
    return [
        line
        for number in numbers
        if number is not None
        for line in (_line(_JUMP_EQUAL, number, 0, 1), _line(_RETURN, verdict))
    ]


def _refuse_argument(machine: Machine, check: _Check) -> list[bytes]:
    number = _find_number(machine, check.call)
    if number is None:
        return []
    jump = _JUMP_ANY_BIT if check.test == "bits" else _JUMP_EQUAL
    # How far to jump: no line to the one that refuses, one to the one that loads the number back.
    if_true, if_false = (1, 0) if check.test == "differs" else (0, 1)
    return [
        _line(_JUMP_EQUAL, number, 0, 4),
        _line(_LOAD, _ARGUMENTS + 8 * check.argument + check.offset),
        _line(jump, check.value, if_true, if_false),
        _line(_RETURN, _ERRNO | errno.EPERM),
        _line(_LOAD, _NUMBER),
    ]


def _find_number(machine: Machine, call: str) -> int | None:
    return NUMBERS[call][0 if machine == "x86_64" else 1]


def _line(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """One instruction, `struct sock_filter`."""
    return struct.pack("=HBBI", code, if_true, if_false, value)
