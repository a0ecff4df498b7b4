"""Build images with BuildKit through the docker command line: the SDK speaks only the classic builder.

An image is tagged by repository, revision and build inputs, so the same commit starts without a build.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpu_worker.commands import Cancel, CommandTimeout, run_command
from gpu_worker.errors import JobFailed
from gpu_worker.process_identity import ProcessIdentity
from gpu_worker.protocol import Claim

BUILD_TIMEOUT_SECONDS = 3600.0  # where the claim sets none
PROBE_TIMEOUT_SECONDS = 20.0


@dataclass(frozen=True)
class BuildTool:
    """A docker command line that can drive BuildKit."""

    path: str
    build: tuple[str, ...]
    environment: Mapping[str, str]
    version: str


def find_build_tool(search_path: str | None = None) -> BuildTool | None:
    """The first docker on the PATH that has buildx, else the first whose own build knows BuildKit.

    There is no fall-back to the classic builder: it ignores or misruns newer Dockerfile syntax.
    """
    candidates = list(_candidates(search_path if search_path is not None else os.environ.get("PATH", os.defpath)))
    for path in candidates:
        version = _output((path, "buildx", "version"))
        if version is not None:
            return BuildTool(path, ("buildx", "build", "--load"), {}, version.strip())
    for path in candidates:
        help_text = _output((path, "build", "--help"), DOCKER_BUILDKIT="1")
        if help_text is not None and "--progress" in help_text and "--secret" in help_text:
            version = _output((path, "--version")) or ""
            return BuildTool(path, ("build",), {"DOCKER_BUILDKIT": "1"}, version.strip())
    return None


def _candidates(search_path: str) -> Iterable[str]:
    seen = set()
    for directory in search_path.split(os.pathsep):
        path = shutil.which("docker", path=directory)
        if path is not None and os.path.realpath(path) not in seen:
            seen.add(os.path.realpath(path))
            yield path


def _output(argv: tuple[str, ...], **environment: str) -> str | None:
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_SECONDS,
            env={**os.environ, **environment},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def image_tag(claim: Claim) -> str:
    """The name of the image that this claim's build makes. Secrets do not count: they leave no trace in an image."""
    inputs = json.dumps({"args": dict(sorted(claim.build_args.items())), "secrets": sorted(claim.secrets)})
    digest = hashlib.sha256(inputs.encode()).hexdigest()[:12]
    repository = re.sub(r"[^a-z0-9]+", "-", claim.repository_id.lower()).strip("-") or "repository"
    return f"openface/{repository}:{claim.revision[:40]}-{digest}"


# BuildKit names the step in which it asked for an image, and repeats it above the error.
NO_BASE_IMAGE = re.compile(
    rb"> \[internal\] load metadata for (?P<name>\S+?):?\r?\n(?s:.*)"
    rb"(no such host|connection refused|timeout|not found|denied|unauthorized|no route to host|i/o)"
)


class ImageBuilder:
    def __init__(self, tool: BuildTool | None) -> None:
        self._tool = tool

    def build(
        self,
        claim: Claim,
        source: Path,
        *,
        labels: Mapping[str, str],
        output: Callable[[bytes], None],
        cancel: Cancel,
        started: Callable[[ProcessIdentity | None], None],
    ) -> str:
        """Build the repository's Dockerfile; the new image's id.

        Raises JobFailed (``no_dockerfile``, ``dockerfile_unusable``, ``build_failed``, ``build_timeout``) or
        JobInterrupted; a cut build is stopped on the engine too (its RUN steps end with the client).
        """
        dockerfile = dockerfile_of(claim, source)
        if self._tool is None:
            raise JobFailed("no_buildkit", "This worker has no docker command line with BuildKit.")
        with tempfile.TemporaryDirectory(prefix="openface-build-") as private:
            id_file = Path(private) / "image-id"
            argv = [
                self._tool.path,
                *self._tool.build,
                "--progress=plain",
                f"--file={dockerfile}",
                f"--iidfile={id_file}",
                f"--tag={image_tag(claim)}",
            ]
            argv += [f"--label={name}={value}" for name, value in labels.items()]
            environment = {**_client_environment(), **self._tool.environment}
            # public values, so they may stand here; as variables of the client they could redirect it (DOCKER_HOST)
            argv += [f"--build-arg={name}={value}" for name, value in claim.build_args.items()]
            for place, (name, value) in enumerate(claim.secrets.items()):
                file = Path(private) / f"secret-{place}"
                file.touch(mode=0o600)
                file.write_text(value)
                argv.append(f"--secret=id={name},src={file}")
            self._run([*argv, str(source)], environment, claim, output, cancel, started)
            return id_file.read_text().strip()

    def _run(
        self,
        argv: list[str],
        environment: Mapping[str, str],
        claim: Claim,
        output: Callable[[bytes], None],
        cancel: Cancel,
        started: Callable[[ProcessIdentity | None], None],
    ) -> None:
        limit = claim.limits.build_timeout_seconds or BUILD_TIMEOUT_SECONDS
        last = _LastLines()

        def hear(data: bytes) -> None:
            last.add(data)
            output(data)

        try:
            code = run_command(
                argv, env=environment, output=hear, cancel=cancel, timeout_seconds=limit, started=started
            )
        except CommandTimeout:
            raise JobFailed("build_timeout", f"The build took longer than its limit of {limit:.0f} s.") from None
        if code != 0:
            raise last.failure(code)


def dockerfile_of(claim: Claim, source: Path) -> Path:
    """The repository's Dockerfile. Raises JobFailed where there is none, or where it is no file of the repository."""
    dockerfile = source / "Dockerfile"
    if dockerfile.is_symlink() and not dockerfile.resolve().is_relative_to(source.resolve()):
        raise JobFailed("dockerfile_unusable", "The Dockerfile is a link that leaves the repository.")
    if dockerfile.is_dir():
        raise JobFailed("dockerfile_unusable", "The repository's Dockerfile is a directory; it has to be a file.")
    if dockerfile.is_symlink() and not dockerfile.is_file():
        raise JobFailed("dockerfile_unusable", "The Dockerfile is a link to a file that is not there.")
    if not dockerfile.is_file():
        if claim.app_file:
            raise JobFailed(
                "no_dockerfile",
                f"The repository has only an app_file ({claim.app_file}) and no Dockerfile; "
                "workers that run containers need a Dockerfile.",
            )
        raise JobFailed("no_dockerfile", "The repository has neither a Dockerfile nor an app_file.")
    return dockerfile


def _client_environment() -> dict[str, str]:
    """What the docker client needs of our own environment: where the engine is, and its configuration."""
    kept = (
        "PATH",
        "HOME",
        "LANG",
        "DOCKER_HOST",
        "DOCKER_CONFIG",
        "DOCKER_CERT_PATH",
        "DOCKER_TLS_VERIFY",
        "DOCKER_CONTEXT",
        "XDG_RUNTIME_DIR",
        "BUILDX_BUILDER",
        "BUILDX_CONFIG",
    )
    return {name: os.environ[name] for name in kept if name in os.environ}


class _LastLines:
    """The end of the build output, for the one sentence that the owner reads first."""

    def __init__(self) -> None:
        self._tail = b""

    def add(self, data: bytes) -> None:
        self._tail = (self._tail + data)[-8192:]

    def failure(self, code: int) -> JobFailed:
        """What went wrong, in a sentence: a base image that cannot be had is no fault of the Dockerfile's steps."""
        if image := NO_BASE_IMAGE.search(self._tail):
            name = image["name"].decode(errors="replace").removeprefix("docker.io/library/")
            return JobFailed(
                "no_base_image",
                f"The base image {name} could not be fetched by this worker: {self.complaint().rpartition(': ')[2]}.",
            )
        return JobFailed("build_failed", f"The build ended with code {code}: {self.complaint()}")

    def complaint(self) -> str:
        lines = [line.strip() for line in self._tail.decode(errors="replace").splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line.lower()]
        return (errors or lines or ["no output"])[-1][:500]
