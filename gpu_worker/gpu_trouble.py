"""What the driver's error codes mean to the owner of a machine: what is the matter, and what helps.

The numbers are those of ``nvmlReturn_t``; they are part of the library's interface and stay. A code that is not told
here is told by its number and the driver's own words, with the remedy that never harms.
"""

from __future__ import annotations

from dataclasses import dataclass

NO_PERMISSION, NO_POWER, NOT_LOADED, IRQ, NO_LIBRARY, NO_FUNCTION = 4, 8, 9, 11, 12, 13
INFOROM, LOST, RESET, OPERATING_SYSTEM, MISMATCH = 14, 15, 16, 17, 18
TIMEOUT, IN_USE, MEMORY, NO_RESOURCES, NOT_READY, NO_GPU, UNKNOWN = 10, 19, 20, 23, 27, 28, 999


@dataclass(frozen=True)
class Trouble:
    sentence: str
    remedy: str
    in_container: str | None = None
    """The remedy where the worker itself runs in a container; None: the same."""

    def help(self, *, in_container: bool) -> str:
        return (in_container and self.in_container) or self.remedy


_LOOK = "Look for NVRM and Xid in the kernel log (dmesg)"
_GIVE_ALL = "Start this worker's container anew, with all GPUs and NVIDIA_DRIVER_CAPABILITIES=utility (see compose)"
_DEVICES = (
    "Let this user read and write /dev/nvidiactl and /dev/nvidia0, /dev/nvidia1, … (ls -l /dev/nvidia*): where a group "
    "has them, such as video, add the worker's user to it (usermod -aG video …) and start the worker anew."
)
_CUT_OFF = (
    "Does the unit limit devices (DevicePolicy=, DeviceAllow=)? It has to allow /dev/nvidia*; start it anew then."
)
_BUSY = f"It often passes by itself. {_LOOK}; where it stays, restart this machine, and check with nvidia-smi."

# The whole driver: its library does not open, or does not even count GPUs.
_DRIVER = {
    NO_LIBRARY: Trouble(
        "The NVIDIA driver's library libnvidia-ml.so.1 is not here.",
        "Install the driver's libraries in the version of its kernel module, and check with nvidia-smi.",
        f"{_GIVE_ALL}.",
    ),
    NOT_LOADED: Trouble(
        "The kernel module of the NVIDIA driver is not loaded.",
        "Load it (modprobe nvidia). Where that fails, it may not be built for this kernel (dkms status), or Secure "
        "Boot refuses it (mokutil --sb-state).",
    ),
    NO_PERMISSION: Trouble(
        "This user may not use the NVIDIA driver.", _DEVICES, f"{_GIVE_ALL}, as a user who may open /dev/nvidia*."
    ),
    OPERATING_SYSTEM: Trouble(
        "The system keeps this process from the NVIDIA driver's devices.", _CUT_OFF, f"{_GIVE_ALL}."
    ),
    MISMATCH: Trouble(
        "The NVIDIA driver was updated, but the kernel still runs the old one: no GPU can be used until this machine "
        "is restarted.",
        "Restart this machine, and check with nvidia-smi.",
        "Restart this machine. Where that has been done since the update, start this worker's container anew.",
    ),
    NO_FUNCTION: Trouble(
        "The library libnvidia-ml.so.1 that is found here lacks what every driver of these years has.",
        "Is it the driver's own, and not a stub of the CUDA toolkit (ldconfig -p | grep nvidia-ml; LD_LIBRARY_PATH)? "
        "Else install a newer driver.",
    ),
    NO_GPU: Trouble(
        "The NVIDIA driver finds no GPU that it can use.",
        f"{_LOOK}: the driver may be too old or too new for this card, or of the open kind, which older cards lack.",
    ),
    NOT_READY: Trouble("The NVIDIA driver is not ready yet.", f"Does nvidia-fabricmanager run, where needed? {_BUSY}"),
    UNKNOWN: Trouble(
        "The NVIDIA driver does not answer: Unknown Error.",
        f"{_LOOK}; a restart of this machine often helps. Check with nvidia-smi.",
        f"{_GIVE_ALL}: one that has lost its GPUs after a reload of systemd gets them back so.",
    ),
}

# One GPU. What needs neither a hand nor a restart is not among these.
_GPU = {
    LOST: Trouble(
        "The GPU is lost: it does not answer on its bus any more. A restart of this machine may bring it back; its "
        "kernel log says why (Xid).",
        "Look for Xid in the kernel log (dmesg); a restart of the machine often helps.",
    ),
    RESET: Trouble(
        "The GPU needs a reset or a restart of this machine before it works again.",
        "Reset it while nothing uses it (nvidia-smi --gpu-reset -i NUMBER), or restart this machine.",
    ),
    NO_POWER: Trouble(
        "The GPU lacks power: a cable of its own power supply is not attached, or not well.",
        "Switch this machine off and attach all power cables of the card.",
    ),
    IRQ: Trouble(
        "The kernel has trouble with the interrupts of the GPU.",
        f"{_LOOK}; an update of the machine's BIOS, or another slot for the card, may help.",
    ),
    NO_PERMISSION: Trouble(
        "This user may not open the GPU.",
        f"{_DEVICES} Nothing is to be done where it is not to be lent.",
        f"{_GIVE_ALL}; nothing is to be done where it is not to be lent.",
    ),
    OPERATING_SYSTEM: Trouble("The system keeps this process from the GPU's device.", _CUT_OFF, f"{_GIVE_ALL}."),
    INFOROM: Trouble(
        "The GPU's own record of itself (infoROM) is damaged.",
        "Ask the maker of the card; nvidia-smi -q shows what is readable.",
    ),
    MISMATCH: _DRIVER[MISMATCH],
    UNKNOWN: Trouble(
        "The driver cannot read this GPU: Unknown Error.",
        f"{_LOOK}; a restart of the machine often helps.",
        f"{_GIVE_ALL}: one that has lost its GPUs after a reload of systemd gets them back so.",
    ),
}

# Answers after which a GPU is not usable, whatever else it answers.
GRAVE = frozenset({LOST, RESET, NO_POWER, IRQ})
# Answers that mean that there is no driver, so nothing that could be broken.
ABSENT = frozenset({NO_LIBRARY, NOT_LOADED})
_PASSING = frozenset({TIMEOUT, IN_USE, MEMORY, NO_RESOURCES, NOT_READY})


def of_driver(code: int, words: str) -> Trouble:
    """*words*: what the driver calls it."""
    # what is wrong with one GPU may keep the library from opening, as that of the only one does
    told = _DRIVER.get(code) or _GPU.get(code)
    return told or Trouble(f"The NVIDIA driver does not answer: {words} ({code}).", _usual(code))


def of_gpu(code: int | None, words: str) -> Trouble:
    """*code* None: the driver answered, and nobody can read what."""
    told = _GPU.get(code) if code is not None else None
    return told or Trouble(f"The driver cannot read this GPU: {words}.", _usual(code))


def _usual(code: int | None) -> str:
    return _BUSY if code in _PASSING else f"{_LOOK}; a restart of the machine often helps. Check with nvidia-smi."
