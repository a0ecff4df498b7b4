"""A worker in a container of its own, without an image to build: this machine's files are mounted into an empty one."""

from __future__ import annotations

import io
import sys
import tarfile
import uuid
from pathlib import Path
from typing import Any

from tests.gpu_worker.control_plane import ControlPlane
from tests.gpu_worker.worker import free_port

ROOT = Path(__file__).parents[2]
IMAGE = "openface-tests/empty:1"
SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/etc/ssl", "/etc/passwd", "/etc/ld.so.cache")


class WorkerContainer:
    """As compose/gpu-worker.yml starts one: the engine's socket, a volume for /data, a directory with the token."""

    def __init__(self, engine: Any, plane: ControlPlane, network: Any, secrets: Path) -> None:
        self.engine, self.plane, self.network, self.secrets = engine, plane, network, secrets
        self.name = f"openface-tests-worker-{uuid.uuid4().hex[:8]}"
        self.volume = engine.volumes.create(self.name)
        self.port = free_port()
        self.container: Any = None

    def start(self) -> None:
        """Create and start it; also again, as an upgrade does."""
        system = [path for path in SYSTEM if Path(path).exists()]
        mounts = [*system, str(Path(sys.base_prefix)), str(Path(sys.prefix)), str(ROOT)]
        self.container = self.engine.containers.run(
            ensure_image(self.engine),
            [sys.executable, "-m", "gpu_worker", "run"],
            name=self.name,
            detach=True,
            pid_mode="host",
            network=self.network.name,
            ports={"8787/tcp": ("127.0.0.1", self.port)},
            working_dir=str(ROOT),
            restart_policy={"Name": "unless-stopped"},
            environment={
                "PATH": "/usr/bin:/bin", "HOME": "/data", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1",
                "OPENFACE_URL": self.plane.url, "WORKER_PUBLIC_URL": f"http://127.0.0.1:{self.port}",
                "WORKER_TOKEN_FILE": "/run/secrets/openface-worker-token", "WORKER_DATA_DIR": "/data",
                "GPU_WORKER_BIND_ADDRESS": "0.0.0.0", "OPENFACE_WORKER_CONTAINER": "1",
            },
            volumes=[
                *(f"{path}:{path}:ro" for path in dict.fromkeys(mounts)),
                "/var/run/docker.sock:/var/run/docker.sock",
                f"{self.name}:/data",
                f"{self.secrets}:/run/secrets:ro",
            ],
        )  # fmt: skip

    def put_token(self) -> None:
        """A fresh token, under the name that the owner's documents give the file."""
        (self.secrets / "openface-worker-enrollment-token").write_text(self.plane.issue_token() + "\n")

    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    def log(self) -> str:
        return str(self.container.logs().decode())

    def run(self, *words: str) -> str:
        """A command inside it, as its owner would with `docker compose exec`."""
        code, output = self.container.exec_run([sys.executable, "-m", "gpu_worker", *words], workdir=str(ROOT))
        assert code == 0, output
        return str(output.decode())

    def remove(self) -> None:
        """As `docker compose down` does: the volume stays."""
        self.container.stop(timeout=20)
        self.container.remove()

    def clear_away(self) -> None:
        if self.container is not None:
            self.container.remove(force=True)
        self.volume.remove()


def ensure_image(engine: Any) -> str:
    """An image with nothing in it."""
    if not engine.images.list(name=IMAGE):
        empty = io.BytesIO()
        with tarfile.open(fileobj=empty, mode="w") as archive:
            directory = tarfile.TarInfo("tmp")
            directory.type, directory.mode = tarfile.DIRTYPE, 0o1777
            archive.addfile(directory)
        engine.api.import_image_from_data(empty.getvalue(), repository=IMAGE.partition(":")[0], tag="1")
    return IMAGE
