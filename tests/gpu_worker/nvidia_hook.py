"""A stand-in for the NVIDIA Container Toolkit: what gives a container its GPUs, here those of the stand-in driver.

As the hook (``prestart``, the container's state on stdin) it puts the driver's library, ``nvidia-smi`` and the lines of
the assigned GPUs into the container's root, as NVIDIA_VISIBLE_DEVICES says: nothing else makes a GPU visible inside.
As the runtime it adds that hook to every container it is asked to create and hands on to runc: Docker's default runtime
on many GPU machines. STUB_TOOLKIT names the directory with ``gpus.txt``, ``libnvidia-ml.so.1`` and ``nvidia-smi``.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

TOOLKIT = Path(os.environ["STUB_TOOLKIT"])
HOOK = TOOLKIT / "bin" / "nvidia-container-runtime-hook"


def prestart() -> int:
    bundle = Path(json.load(sys.stdin)["bundle"])
    config = json.loads((bundle / "config.json").read_text())
    environment = dict(pair.partition("=")[::2] for pair in config["process"]["env"])
    wanted = environment.get("NVIDIA_VISIBLE_DEVICES", "void")
    lines = {line.split()[0].removeprefix("uuid="): line for line in (TOOLKIT / "gpus.txt").read_text().splitlines()}
    if wanted in ("", "void", "none"):
        return 0
    uuids = list(lines) if wanted == "all" else wanted.split(",")
    for uuid in uuids:
        if uuid not in lines:
            print(f"nvidia-container-cli: device error: unknown device: {uuid}", file=sys.stderr)
            return 1
    root = bundle / config["root"]["path"]  # absolute, or below the bundle
    for directory in ("etc", "usr/lib", "usr/bin"):
        (root / directory).mkdir(parents=True, exist_ok=True)
    (root / "etc/stub-nvml.txt").write_text("".join(f"{lines[uuid]}\n" for uuid in uuids))
    shutil.copy(TOOLKIT / "libnvidia-ml.so.1", root / "usr/lib")
    shutil.copy(TOOLKIT / "nvidia-smi", root / "usr/bin")
    return 0


def runtime(arguments: list[str]) -> None:
    if "create" in arguments:
        file = Path(arguments[arguments.index("--bundle") + 1]) / "config.json"
        config = json.loads(file.read_text())
        hook = {"path": str(HOOK), "args": [HOOK.name, "prestart"], "env": [f"STUB_TOOLKIT={TOOLKIT}"]}
        config.setdefault("hooks", {}).setdefault("prestart", []).append(hook)
        file.write_text(json.dumps(config))
    os.execvp("runc", ["runc", *arguments])


if __name__ == "__main__":
    if sys.argv[1:] == ["prestart"]:
        sys.exit(prestart())
    runtime(sys.argv[1:])
