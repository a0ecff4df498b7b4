"""The real worker process, and small repositories for it to run."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tests.gpu_worker.control_plane import ControlPlane

T = TypeVar("T")
HANG_SECONDS = 30.0


def eventually(look: Callable[[], T | None], *, seconds: float = HANG_SECONDS, what: str = "it") -> T:
    """The first true value of *look*; fails when the time is over."""
    deadline = time.monotonic() + seconds
    while True:
        value = look()
        if value:
            return value
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds:.0f} s; last seen: {value!r}"
        time.sleep(0.03)


class WorkerProcess:
    """``python -m gpu_worker run`` against a control plane; can be killed and started again on the same data."""

    def __init__(
        self, plane: ControlPlane, directory: Path, *, executor: str, settings: dict[str, str] | None = None
    ) -> None:
        self.plane, self.directory = plane, directory
        self.data_dir = directory / "data"
        self.log_file = directory / "worker.log"
        self.port = free_port()
        token_file = directory / "token"
        token_file.write_text(plane.issue_token() + "\n")
        self.environment = {
            "PATH": os.environ["PATH"], "HOME": str(directory), "LANG": "C.UTF-8", "OPENFACE_URL": plane.url,
            "WORKER_ENROLLMENT_TOKEN_FILE": str(token_file), "WORKER_DATA_DIR": str(self.data_dir),
            "GPU_WORKER_PORT": str(self.port), "OPENFACE_EXECUTOR": executor, **(settings or {}),
        }  # fmt: skip
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> WorkerProcess:
        sessions = len(self.plane.registers)
        self.spawn()
        eventually(lambda: len(self.plane.registers) > sessions, what="register")
        return self

    def spawn(self) -> None:
        with open(self.log_file, "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gpu_worker", "run"], env=self.environment, stdout=log, stderr=log,
                cwd=Path(__file__).parents[2],
            )  # fmt: skip

    def kill(self) -> None:
        """kill -9, as a power cut or the OOM killer does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def terminate(self) -> int:
        """SIGTERM, and the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(HANG_SECONDS)

    def wait(self) -> int:
        assert self.process is not None
        return self.process.wait(HANG_SECONDS)

    def log(self) -> str:
        return self.log_file.read_text()

    def journal(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in (self.data_dir / "jobs").glob("*.json")]

    def rewrite_journal(self, **changes: Any) -> None:
        """Change the one entry of a worker that does not run, to what it might have been when it died."""
        [entry] = (self.data_dir / "jobs").glob("*.json")
        entry.write_text(json.dumps({**json.loads(entry.read_text()), **changes}))

    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def make_repository(root: Path, name: str, files: Mapping[str, str | bytes]) -> str:
    """A bare repository ``alice/<name>.git`` below *root* with one commit of *files*; the commit's id."""
    bare, work = root / "alice" / f"{name}.git", root / "work" / name
    if not bare.exists():
        git("init", "--quiet", "--bare", "--initial-branch", "main", str(bare))
        git("init", "--quiet", "--initial-branch", "main", str(work))
    for path, content in files.items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        target = work / path
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
        target.chmod(0o755 if content[:4] == b"\x7fELF" else 0o644)
    git("add", "--all", directory=work)
    git("commit", "--quiet", "--message", "Change", directory=work)
    git("push", "--quiet", "--force", str(bare), "HEAD:main", directory=work)
    return git("rev-parse", "HEAD", directory=work).strip()


def git(*arguments: str, directory: Path | None = None) -> str:
    identity = {f"GIT_{role}_{what}": "tests" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **identity}
    done = subprocess.run(["git", *arguments], cwd=directory, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


WEB_APP = """
import http.server, json, os, sys

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = json.dumps({"pid": os.getpid(), "path": self.path, "environment": dict(os.environ)}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        print("asked for", self.path, flush=True)

    def log_message(self, *arguments):
        pass

class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *arguments):
        pass  # a worker killed in a probe leaves a broken connection, whose traceback would break into other lines

print("listening on", os.environ["PORT"], flush=True)
Server(("0.0.0.0", int(os.environ["PORT"])), Handler).serve_forever()
"""
