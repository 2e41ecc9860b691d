"""The environment that a process was started with: of a process of ours on this machine, secrets masked."""

from pathlib import Path

from ...engine.masking import MASKED, mask_variable
from ...engine.model import ProcessReading
from ...engine.sources.processes import PROC
from ...engine.text import make_printable
from .process_signals import SignalPolicy, has_same_start


class EnvironmentRefused(Exception):  # noqa: N818 - it is an answer for the user, not a failure of ours
    """The environment cannot be shown; the text says why in one sentence."""


def refuse_environment(
    process: ProcessReading, node: str, is_trace: bool, policy: SignalPolicy
) -> str | None:
    """Return why the environment of a process cannot be read from here, or None."""
    if is_trace or policy.is_replay:
        return f"process {process.pid} is part of a recording, which has no environments"
    if policy.local_node is not None and node != policy.local_node:
        return f"process {process.pid} runs on {node}: its environment is shown only in a view on that node"
    if process.location == "outside":
        return f"process {process.pid} runs outside this container: its environment cannot be read from here"
    if process.location == "gone":
        return f"process {process.pid} has exited"
    return None


def read_environment(process: ProcessReading, proc: Path = PROC) -> dict[str, str]:
    """Return the variables of a process by name, with the values of secrets masked.

    Raises:
        EnvironmentRefused: It has exited, its id belongs to another process by now, or it is somebody else's.
    """
    try:
        data = (proc / str(process.pid) / "environ").read_bytes()
    except PermissionError:
        raise EnvironmentRefused(
            f"no permission to read the environment of process {process.pid}: it belongs to another user, "
            "or protects itself"
        ) from None
    except OSError:
        raise EnvironmentRefused(f"process {process.pid} has exited") from None
    if not has_same_start(process):
        raise EnvironmentRefused(f"process id {process.pid} now belongs to another process")
    entries = (entry.decode("utf-8", "replace").partition("=") for entry in data.split(b"\0"))
    return {
        make_printable(name): mask_variable(name, make_printable(value)) for name, _, value in entries if name
    }


def describe_environment(variables: dict[str, str]) -> str:
    """Return variables as lines in the order of their names, with what is masked said first."""
    masked = sum(MASKED in value for value in variables.values())
    secrets = "No value is masked." if not masked else f"{masked} masked: names that look like secrets."
    head = f"{len(variables)} variables, as they were when the process started. {secrets}"
    if not variables:
        head = "The process has no variables, or has removed them."
    return "\n".join([head, "", *(f"{name}={variables[name]}" for name in sorted(variables))])
