#!/usr/bin/env python3
"""Make a base image with Python out of what this machine has, for engines that reach no registry.

    scripts/make_base_image.py [TAG]
    scripts/make_base_image.py --debian [TAG]

The first is quick and small: this machine's Python with its standard library and pip, the shared libraries these need,
busybox for a shell, and this machine's certificate authorities. It stands in for python:3-slim under a name of its own:
there is no apt and no useradd in it.

The second is a whole small Debian of this machine's release, with Python, pip and apt, for repositories that ask for
Debian packages. It is made by mmdebstrap from the package mirror that this machine's own apt uses, in a minute or two.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

DEFAULT_TAG = f"openface-local/python:{platform.python_version()}"
DEBIAN_PACKAGES = ("python3", "python3-pip", "python-is-python3", "ca-certificates")
BUSYBOX = Path("/bin/busybox")
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
# Of the standard library: what no app at run time asks for. EXTERNALLY-MANAGED would forbid pip to install.
LEFT_OUT = shutil.ignore_patterns(
    *("__pycache__", "test", "idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip", "pydoc_data", "config-*"),
    *("site-packages", "dist-packages", "EXTERNALLY-MANAGED"),
)
# The C library opens the first by name when a program asks for a host or a thread's end: no table of imports names
# them. The rest is what compiled packages from PyPI (NumPy, for one) take for granted on any Linux.
OPENED_BY_NAME = (
    *("libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2", "libgcc_s.so.1"),
    *("libstdc++.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1"),
)
PIP = """#!/usr/bin/env python3
import sys
from pip._internal.cli.main import main
sys.exit(main())
"""


class CannotMake(RuntimeError):
    """This machine lacks something for it; the message says what."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Make a base image with Python out of what this machine has.")
    parser.add_argument("--debian", action="store_true", help="a whole small Debian with apt, made by mmdebstrap")
    parser.add_argument("tag", nargs="?", help="the image's name")
    asked = parser.parse_args()
    try:
        tag = asked.tag or (f"openface-local/debian:{release()}" if asked.debian else DEFAULT_TAG)
        if asked.debian:
            import_debian(tag)
        else:
            import_own_files(tag)
    except (CannotMake, OSError) as error:
        print(f"no base image: {error}", file=sys.stderr)
        return 1
    print(tag)
    return 0


def import_own_files(tag: str) -> None:
    with tempfile.TemporaryDirectory(prefix="openface-base-image-") as directory:
        root = Path(directory)
        add_shell(root)
        add_python(root)
        add_system_files(root)
        hand_to_engine(
            ["tar", "-C", str(root), "--numeric-owner", "--owner=0", "--group=0", "-c", "."], tag, kind="local"
        )


def import_debian(tag: str) -> None:
    if shutil.which("mmdebstrap") is None:
        raise CannotMake("mmdebstrap is needed: apt-get install mmdebstrap")
    hooks = [
        'rm -f "$1"/usr/lib/python3*/EXTERNALLY-MANAGED',  # the image is one app's, so pip may install into it
        *([f"copy-in {shlex.quote(str(CERTIFICATES))} {CERTIFICATES.parent}"] if CERTIFICATES.exists() else []),
    ]
    hand_to_engine(
        [
            *("mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(DEBIAN_PACKAGES)}"),
            *(f"--customize-hook={hook}" for hook in hooks),
            *(release(), "-"),
        ],
        tag,
        kind="debian",
    )


def release() -> str:
    """This machine's Debian, by its name."""
    name = platform.freedesktop_os_release().get("VERSION_CODENAME")
    if name is None:
        raise CannotMake("this machine is not a Debian")
    return name


def add_shell(root: Path) -> None:
    if not BUSYBOX.exists() or shared_libraries([BUSYBOX]):
        raise CannotMake("a static busybox is needed: apt-get install busybox-static")
    copy(BUSYBOX, root)
    for applet in run(str(BUSYBOX), "--list").split():
        link(root / "bin" / applet, "busybox")
    link(root / "usr/bin/env", "/bin/env")


def add_python(root: Path) -> None:
    # Of the interpreter behind a virtual environment, not of the environment.
    interpreter = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
    base = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix, "installed_base": sys.base_prefix}
    library = Path(sysconfig.get_path("stdlib", vars=base))
    packages = Path(run(str(interpreter), "-Ic", "import sysconfig; print(sysconfig.get_path('purelib'))"))

    copy(interpreter, root)
    shutil.copytree(library, inside(root, library), ignore=LEFT_OUT, symlinks=True)
    for shared in shared_libraries([interpreter, *(library / "lib-dynload").glob("*.so")]):
        copy(shared, root)
    for name in ("python", "python3", f"python{sys.version_info.major}.{sys.version_info.minor}"):
        link(root / "usr/local/bin" / name, "/" + str(inside(root, interpreter).relative_to(root)))
    with zipfile.ZipFile(pip_wheel(library)) as wheel:
        wheel.extractall(inside(root, packages))
    pip = root / "usr/local/bin/pip"
    pip.write_text(PIP, encoding="utf-8")
    pip.chmod(0o755)


def add_system_files(root: Path) -> None:
    libraries = [path.parent for path in root.rglob("libc.so.6")]
    for name in OPENED_BY_NAME:
        for directory in libraries:
            source = Path("/") / directory.relative_to(root) / name
            if source.exists() and not inside(root, source).exists():
                copy(source, root)
    if CERTIFICATES.exists():
        copy(CERTIFICATES, root)
    etc = root / "etc"
    (etc / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n", encoding="ascii")
    (etc / "group").write_text("root:x:0:\nnogroup:x:65534:\n", encoding="ascii")
    (etc / "nsswitch.conf").write_text("hosts: files dns\n", encoding="ascii")
    holding = sorted({f"/{path.parent.relative_to(root)}" for path in root.rglob("lib*.so*")})
    (etc / "ld.so.conf").write_text("\n".join(holding) + "\n", encoding="ascii")
    run(shutil.which("ldconfig", path="/usr/sbin:/sbin") or "ldconfig", "-r", str(root))
    for name, mode in (("root", 0o700), ("tmp", 0o1777), ("var/tmp", 0o1777)):
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name).chmod(mode)
    root.chmod(0o755)


def hand_to_engine(tree: list[str], tag: str, *, kind: str) -> None:
    """Make the image of what the command *tree* writes: a tar file of the whole root."""
    described = (
        "ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin PYTHONUNBUFFERED=1",
        f"ENV SSL_CERT_FILE={CERTIFICATES} PIP_CERT={CERTIFICATES} PIP_ROOT_USER_ACTION=ignore",
        f"LABEL openface.base-image={kind}",
        'CMD ["python3"]',
    )
    changes = [word for line in described for word in ("--change", line)]
    with subprocess.Popen(tree, stdout=subprocess.PIPE) as tar:
        result = subprocess.run(
            ["docker", "import", *changes, "-", tag], stdin=tar.stdout, capture_output=True, text=True, check=False
        )
    if result.returncode:
        raise CannotMake(f"docker import said: {result.stderr.strip() or 'nothing'}")
    if tar.returncode:
        subprocess.run(["docker", "image", "rm", tag], capture_output=True, check=False)  # half of a root
        raise CannotMake(f"{tree[0]} failed")


def shared_libraries(programs: Iterable[Path]) -> list[Path]:
    """Return the shared libraries that these files need, as the loader of this machine finds them."""
    found: set[Path] = set()
    for program in programs:
        said = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False).stdout
        # "libz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x…)" and, for the loader itself, "/lib64/ld-linux… (0x…)".
        found.update(Path(path) for path in re.findall(r"(?:=> |^\t)(/\S+) \(0x", said, re.MULTILINE))
    return sorted(found)


def pip_wheel(library: Path) -> Path:
    # Debian takes the wheel out of ensurepip and keeps it beside.
    for directory in (library / "ensurepip/_bundled", Path("/usr/share/python-wheels")):
        for wheel in sorted(directory.glob("pip-*.whl")):
            return wheel
    raise CannotMake("there is no pip wheel: apt-get install python3-venv")


def inside(root: Path, path: Path) -> Path:
    """Return where a file of this machine stands in the image: where it is here, but a private Python in /usr/local.

    A private one often lives in a home directory that only its owner may enter; it finds its library from anywhere.
    """
    own = Path(sys.base_prefix)
    if own != Path("/usr") and path.is_relative_to(own):
        return root / "usr/local" / path.relative_to(own)
    return root / path.relative_to("/")


def copy(source: Path, root: Path) -> None:
    """Copy a file, whatever links lead to it, to the same path inside."""
    target = inside(root, source)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


def link(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_symlink() and not path.exists():
        path.symlink_to(target)


def run(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except subprocess.CalledProcessError as error:
        raise CannotMake(f"{command[0]} said: {error.stderr.strip()}") from None


if __name__ == "__main__":
    sys.exit(main())
