"""A machine made of files: /proc and control groups under a folder of the test's own."""

from pathlib import Path

INITIAL = "pid:[4026531836]"
BOOT_S = 1_700_000_000


class FakeMachine:
    """Writes what the kernel would show.

    Args:
        root: Stands for `/`.
        is_container: Whether this process is in a pid namespace of its own.
    """

    def __init__(self, root: Path, *, is_container: bool = False) -> None:
        self.root = root
        self.proc = root / "proc"
        (self.proc / "self/ns").mkdir(parents=True)
        (self.proc / "self/ns/pid").symlink_to("pid:[4026532999]" if is_container else INITIAL)
        self.write("proc/self/cgroup", "0::/user.slice/session-1.scope\n")
        self.write("proc/stat", f"cpu  100 0 50 800 50 0 0 0 0 0\nintr 1 2 3\nbtime {BOOT_S}\n")

    def write(self, name: str, text: str) -> Path:
        """Write one file below the root."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def add_process(
        self,
        pid: int,
        *,
        command: str = "python\0train.py\0",
        name: str = "python",
        uid: int = 0,
        start_ticks: int = 1000,
        cgroup: str = "0::/user.slice/session-1.scope\n",
        namespaced_pids: str = "",
        state: str = "S",
        parent: int = 1,
        cpu_ticks: int = 0,
        threads: int = 1,
        resident_pages: int = 0,
        opened: tuple[str, ...] = (),
    ) -> None:
        """Add a process, or replace the one of that number."""
        user_ticks = cpu_ticks // 2
        fields = f"{parent} 1 1 1 1 1 1 1 1 1 {user_ticks} {cpu_ticks - user_ticks} 0 0 20 0 {threads} 0"
        memory = f"{start_ticks} 1 {resident_pages} 1"
        self.write(f"proc/{pid}/stat", f"{pid} ({name}) {state} {fields} {memory}\n")
        status = f"Name:\t{name}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nNSpid:\t{namespaced_pids or pid}\n"
        self.write(f"proc/{pid}/status", status)
        self.write(f"proc/{pid}/cmdline", command)
        self.write(f"proc/{pid}/cgroup", cgroup)
        (self.proc / str(pid) / "fd").mkdir(exist_ok=True)
        for number, target in enumerate(opened):
            (self.proc / str(pid) / "fd" / str(number)).symlink_to(target)

    def end_process(self, pid: int) -> None:
        """Take a process away."""
        for path in sorted((self.proc / str(pid)).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        (self.proc / str(pid)).rmdir()
