"""Repositories for builds, real builds of them without a worker around, and looks at what a build left."""

from __future__ import annotations

import functools
import io
import json
import platform
import subprocess
import sys
import tarfile
import threading
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import docker

from gpu_worker.build_key import BuildKey
from gpu_worker.build_settings import BuildSettings
from gpu_worker.images import ANY_IMAGE, ImageBuilder, find_build_tool, plan_build
from gpu_worker.lent_images import Lender
from gpu_worker.process_identity import all_pids
from gpu_worker.protocol import Claim
from tests.gpu_worker.schemas import golden

PYTHON_IMAGE = f"openface-local/python:{platform.python_version()}"
MAKE_IMAGE = Path(__file__).parents[2] / "scripts" / "make_base_image.py"


@functools.cache
def python_image() -> str:
    """The name of a base image with Python and pip, made of this machine's own files where it is not there yet."""
    there = subprocess.run(["docker", "image", "inspect", PYTHON_IMAGE], capture_output=True, check=False)
    if there.returncode != 0:
        subprocess.run([sys.executable, str(MAKE_IMAGE), PYTHON_IMAGE], capture_output=True, check=True)
    return PYTHON_IMAGE


def write(directory: Path, files: Mapping[str, str | bytes]) -> Path:
    """A repository's files below *directory*; the directory."""
    for name, content in files.items():
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
        target.chmod(0o755 if content[:4] == b"\x7fELF" else 0o644)
    return directory


def claim(**changes: Any) -> Claim:
    """A claim of a repository that no other test builds."""
    plain = Claim.read(golden("claim.response")["minimal"])
    return replace(plain, repository_id=uuid.uuid4().hex, **changes)


KEY = BuildKey()  # all builds of a run are one worker's


@dataclass
class Build:
    """One build on the real engine. Its images are gone with `forget`."""

    claim: Claim
    source: Path
    settings: BuildSettings = field(default_factory=lambda: BuildSettings(python_image=python_image()))
    cancel: threading.Event = field(default_factory=threading.Event)
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    log: str = ""
    lender: Lender = ANY_IMAGE

    def run(self) -> str:
        """Build; the image's id. Raises what ImageBuilder raises."""
        plan = plan_build(self.claim, self.source, self.settings)
        return ImageBuilder(find_build_tool(), lender=self.lender, key=KEY).build(
            plan,
            self.claim,
            self.source,
            labels={"openface.worker": self.mark},
            output=self._hear,
            cancel=self.cancel,
            started=lambda identity: None,
        )

    def forget(self) -> None:
        engine = docker.from_env()
        try:
            for image in engine.images.list(filters={"label": f"openface.worker={self.mark}"}):
                engine.images.remove(str(image.id), force=True)
        finally:
            engine.close()

    def _hear(self, data: bytes) -> None:
        self.log += data.decode(errors="replace")


def running_with(mark: str) -> list[int]:
    """Processes on this machine, in containers and builds too, whose command line names *mark*."""
    found = []
    for pid in all_pids():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(mark.encode() in word for word in words):
            found.append(pid)
    return found


def image_content(image_id: str) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of all that an image consists of: its description and history, and every file of every layer."""
    engine = docker.from_env()
    try:
        saved = io.BytesIO(b"".join(engine.images.get(image_id).save()))
    finally:
        engine.close()
    with tarfile.open(fileobj=saved) as outer:
        for member in outer.getmembers():
            content = outer.extractfile(member)
            if content is None:
                continue
            data = content.read()
            yield member.name, data
            if tarfile.is_tarfile(io.BytesIO(data)):
                with tarfile.open(fileobj=io.BytesIO(data)) as layer:
                    for inner in layer.getmembers():
                        yield inner.name, b""


def wheel(name: str, version: str, code: str, *, scripts: Mapping[str, str] | None = None) -> bytes:
    """A package of one module; *scripts* are commands and the functions that they call."""
    info = f"{name}-{version}.dist-info"
    entry_points = "[console_scripts]\n" + "".join(f"{command} = {call}\n" for command, call in (scripts or {}).items())
    files = {
        f"{name}.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": entry_points,
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(path, text)
    return packed.getvalue()


# Stands for a framework: serves one page of JSON about itself on the port that its own variable names.
FRAMEWORK = """
import http.server, json, os, sys

def serve(port_variable="PORT"):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            open("written", "w").close()
            about = {
                "uid": os.getuid(), "home": os.environ["HOME"], "directory": os.getcwd(), "words": sys.argv[1:],
                "files": sorted(os.listdir(".")), "python": list(sys.version_info[:2]),
            }
            body = json.dumps(about).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    http.server.HTTPServer(("0.0.0.0", int(os.environ[port_variable])), Handler).serve_forever()
"""


def about(body: Any) -> dict[str, Any]:
    return dict(body if isinstance(body, dict) else json.loads(body))
