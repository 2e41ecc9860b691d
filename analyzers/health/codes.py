"""What errors of GPU drivers mean and what to do about them.

XIDs by NVIDIA's catalogue (docs.nvidia.com/deploy/xid-errors, "Resolution Bucket"), as of November 2026; the
words are ours.
"""

from typing import Literal, NamedTuple

from ...engine.model import DeviceEvent, DeviceSample, Severity
from ..findings.driver_tools import NVIDIA, DriverTools

Remedy = Literal["restart job", "reset", "reboot", "check link", "watch", "follow"]


class Meaning(NamedTuple):
    what: str
    severity: Severity
    remedy: Remedy
    # Whether it is the program's mistake as a rule, and not the hardware's.
    is_of_program: bool = False


_XIDS: dict[int, Meaning] = {
    13: Meaning("a program made an invalid access or instruction", "medium", "restart job", True),
    31: Meaning("a program accessed an address that is not mapped", "medium", "restart job", True),
    32: Meaning("the driver received corrupted commands", "medium", "restart job"),
    43: Meaning("the GPU stopped the work of a program", "medium", "restart job", True),
    45: Meaning("work was cancelled after an earlier error, or because its process ended", "low", "follow"),
    48: Meaning("memory had an error that ECC could not correct", "critical", "reset"),
    62: Meaning("a controller inside the GPU halted", "critical", "reset"),
    63: Meaning(
        "memory with errors was marked; a spare row replaces it at the next reset", "medium", "watch"
    ),
    64: Meaning("memory with errors could not be marked for replacement", "critical", "reset"),
    69: Meaning("a program made an invalid command", "medium", "restart job", True),
    74: Meaning("an NVLink failed", "high", "check link"),
    79: Meaning("the GPU fell off the bus", "critical", "reboot"),
    92: Meaning("ECC corrects unusually many memory errors", "medium", "watch"),
    94: Meaning("memory had an error that ended only the programs that used it", "high", "restart job"),
    95: Meaning("memory had an error that may have reached every program", "critical", "reset"),
    109: Meaning("the GPU could not switch between programs in time", "high", "reset"),
    119: Meaning("the GPU's system processor (GSP) did not answer", "critical", "reset"),
    120: Meaning("the GPU's system processor (GSP) failed", "critical", "reset"),
    140: Meaning("memory had an error that ECC could not correct", "critical", "reset"),
    143: Meaning("the GPU could not be started", "critical", "reset"),
    154: Meaning("the driver says what the GPU needs after an earlier error", "high", "follow"),
}
_UNKNOWN_XID = Meaning("an error of the driver; see NVIDIA's catalogue of XIDs", "medium", "follow")
_OTHERS: dict[str, Meaning] = {
    "hang": Meaning("work on the GPU did not end in time", "medium", "restart job"),
    "reset": Meaning("the driver reset the GPU, which ends the programs on it", "high", "restart job"),
    "wedged": Meaning("the driver gave the GPU up", "critical", "reboot"),
    "memory error": Meaning("memory had an error that could not be corrected", "critical", "reset"),
    "lost": Meaning("the GPU fell off the bus", "critical", "reboot"),
}


def explain_event(event: DeviceEvent) -> Meaning:
    if event.kind == "xid":
        return _XIDS.get(event.code or 0, _UNKNOWN_XID)
    return _OTHERS[event.kind]


def advise(meaning: Meaning, tools: DriverTools, device: DeviceSample | None) -> str:
    """Return what to do, in sentences without a last full stop."""
    is_nvidia = tools is NVIDIA
    reset = f"{tools.word_reset(device)}, or reboot"
    again = (
        "If it comes back on this GPU, have it tested (`dcgmi diag -r 3`) and replaced"
        if is_nvidia
        else ("If it comes back on this GPU, have it tested and replaced")
    )
    if meaning.is_of_program:
        check = " (`compute-sanitizer` finds the place)" if is_nvidia else ""
        return (
            f"Restart the job. As a rule it is a mistake of the program{check}; if programs that run well "
            "elsewhere have it only on this GPU, it is the hardware"
        )
    return {
        "restart job": f"Restart the job from its checkpoint. {again}",
        "reset": f"End the jobs on it, then reset the GPU: {reset}. {again}",
        "reboot": f"Take the node out of service, reboot it, have power, cooling and slot checked. {again}",
        "check link": "Restart the job. `nvidia-smi nvlink -e` counts the errors of each link; if they rise, "
        f"reset all GPUs of the node or reboot. {again}",
        "watch": f"No job is affected now. Reset the GPU when it is idle: {reset}",
        "follow": "Look for the error before it in the kernel's log: that one says what happened",
    }[meaning.remedy]
