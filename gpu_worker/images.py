"""Build images with BuildKit through the docker command line: the SDK speaks only the classic builder.

An image is labelled with repository, revision and build inputs, so the same commit starts without a build. Its name is
nobody's to guess: a Dockerfile could ask for it by that. Where the repository has no Dockerfile, one is made for it
(`recipes.py`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpu_worker import __version__
from gpu_worker.app_plan import FILE_LIMIT_BYTES, read_plan
from gpu_worker.build_errors import LastLines
from gpu_worker.build_groups import BuildGroup
from gpu_worker.build_key import BuildKey
from gpu_worker.build_settings import BuildSettings
from gpu_worker.build_watch import Bounds, BuildWatch
from gpu_worker.cache_mounts import NAMESPACE, separated
from gpu_worker.commands import Cancel, CommandTimeout, run_command
from gpu_worker.dockerfile_text import refuse_hidden
from gpu_worker.errors import JobFailed
from gpu_worker.lent_images import Lender, NamedImages
from gpu_worker.process_identity import ProcessIdentity
from gpu_worker.protocol import Claim
from gpu_worker.recipes import Recipe, recipe_for
from gpu_worker.within import is_within

BUILD_TIMEOUT_SECONDS = 3600.0  # where the claim sets none
PROBE_TIMEOUT_SECONDS = 20.0
NO_GROUP = BuildGroup(missing="nobody asked for limits")
ANY_IMAGE = Lender(lambda name: None)


@dataclass(frozen=True)
class BuildTool:
    """A docker command line that can drive BuildKit."""

    path: str
    build: tuple[str, ...]
    environment: Mapping[str, str]
    version: str

    @property
    def is_buildx(self) -> bool:
        return self.build[0] == "buildx"


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


@dataclass(frozen=True)
class BuildPlan:
    """What one claim's image is made of."""

    inputs: str
    """A digest of all that decides what comes out, beside repository and revision."""
    dockerfile: Path | None = None
    """The repository's own; None: the recipe counts."""
    recipe: Recipe | None = None

    @property
    def text(self) -> str:
        """What is built, in the words of a Dockerfile."""
        if self.recipe is not None:
            return self.recipe.text
        assert self.dockerfile is not None
        return self.dockerfile.read_text(encoding="utf-8", errors="replace")


def plan_build(claim: Claim, source: Path, settings: BuildSettings) -> BuildPlan:
    """How to build the repository in *source*; quick, and nothing is made yet.

    The repository's own Dockerfile goes before what its README says. Raises JobFailed: ``dockerfile_unusable``,
    ``no_dockerfile``, and what `app_plan.read_plan` raises.
    """
    dockerfile = source / "Dockerfile"
    if dockerfile.exists() or dockerfile.is_symlink():
        own = _checked(dockerfile, source)
        return BuildPlan(inputs_of(claim), dockerfile=own)
    if claim.sdk == "docker":
        raise JobFailed("no_dockerfile", "The README says sdk: docker, and the repository has no Dockerfile.")
    recipe = recipe_for(read_plan(claim, source), settings, port=claim.port)
    return BuildPlan(inputs_of(claim, recipe), recipe=recipe)


def inputs_of(claim: Claim, recipe: Recipe | None = None) -> str:
    """A digest of what this claim's build is made of. Secrets do not count: they leave no trace in an image.

    A recipe takes neither variables nor secrets, and holds all else that counts: base image, port, packages.
    """
    if recipe is None:
        inputs = json.dumps({"args": dict(sorted(claim.build_args.items())), "secrets": sorted(claim.secrets)})
    else:
        inputs = json.dumps({"recipe": recipe.text})
    return hashlib.sha256(inputs.encode()).hexdigest()


def asked_inputs(claim: Claim, settings: BuildSettings) -> str:
    """The same for what a recipe is made of, so that its image is found before the source is read.

    The recipes of another version of this worker may be others.
    """
    readme = [claim.sdk, claim.app_file, claim.sdk_version, claim.python_version, claim.port]
    private = [str(file) if file else None for file in (settings.pip_config, settings.apt_sources)]
    inputs = json.dumps([__version__, readme, settings.python_image, private])
    return hashlib.sha256(inputs.encode()).hexdigest()


def new_name(claim: Claim) -> str:
    """A name for the image of a build. It says what it is to the machine's owner, and cannot be guessed by others."""
    repository = re.sub(r"[^a-z0-9]+", "-", claim.repository_id.lower()).strip("-") or "repository"
    return f"openface/{repository}:{claim.revision[:12]}-{secrets.token_hex(8)}"


class ImageBuilder:
    def __init__(
        self,
        tool: BuildTool | None,
        group: Callable[[bool], BuildGroup] = lambda buildx: NO_GROUP,
        lender: Lender = ANY_IMAGE,
        key: BuildKey | None = None,
    ) -> None:
        """*group*: where builds run; it is told whether buildx builds, and asked before each build.

        *key*: keeps what BuildKit keeps of one repository from the others; None: from other builders' as well.
        """
        self._tool, self._group, self._lender, self._key = tool, group, lender, key or BuildKey()
        self._bounds = Bounds()

    def build(
        self,
        plan: BuildPlan,
        claim: Claim,
        source: Path,
        *,
        labels: Mapping[str, str],
        output: Callable[[bytes], None],
        cancel: Cancel,
        started: Callable[[ProcessIdentity | None], None],
    ) -> str:
        """Build what *plan* says; the id of the new image, which has no name yet.

        Raises JobFailed (``build_failed``, ``build_timeout``, and what `build_errors.py`, `build_watch.py` and
        `lent_images.py` know better) or JobInterrupted; a cut build is stopped on the engine too (its RUN steps end
        with the client).
        """
        if self._tool is None:
            raise JobFailed("no_buildkit", "This worker has no docker command line with BuildKit.")
        # beside the source, not in it: what a killed worker leaves here, secrets too, goes at its next start
        with tempfile.TemporaryDirectory(prefix="build-", dir=source.parent) as private:
            id_file = Path(private) / "image-id"
            argv = [
                self._tool.path,
                *self._tool.build,
                "--progress=plain",
                f"--iidfile={id_file}",
                *(f"--label={name}={value}" for name, value in labels.items()),
            ]
            named = NamedImages(self._lender, claim.repository_id)
            group = self._group(self._tool.is_buildx)
            if group.parent is not None:
                argv.append(f"--cgroup-parent={group.parent}")
            if plan.recipe is not None:
                argv += _use_recipe(plan.recipe, Path(private), output)
            else:
                if claim.sdk not in (None, "docker"):
                    output(f"The repository has a Dockerfile: it counts, and not sdk: {claim.sdk}.\n".encode())
                named.read(plan.text, claim.build_args)
                argv += _own_dockerfile(plan, claim, source, Path(private), self._key.name_of(claim.repository_id))
            with self._bounds.during(group):
                self._run([*argv, str(source)], plan, claim, output, cancel, started, group, named)
            return id_file.read_text().strip()

    def _run(
        self,
        argv: list[str],
        plan: BuildPlan,
        claim: Claim,
        output: Callable[[bytes], None],
        cancel: Cancel,
        started: Callable[[ProcessIdentity | None], None],
        group: BuildGroup,
        named: NamedImages,
    ) -> None:
        assert self._tool is not None
        limit = claim.limits.build_timeout_seconds or BUILD_TIMEOUT_SECONDS
        environment = {**_client_environment(), **self._tool.environment}
        last = LastLines()
        watch = BuildWatch(group, self._bounds, say=lambda text: output(f"{text}\n".encode()))

        def hear(data: bytes) -> None:
            last.add(data)
            output(data)
            if plan.recipe is None:  # what a recipe is built on, the owner has chosen
                named.hear(data)

        try:
            code = run_command(
                argv,
                env=environment,
                output=hear,
                cancel=cancel,
                timeout_seconds=limit,
                started=started,
                watch=watch.look,
            )
        except CommandTimeout:
            raise JobFailed("build_timeout", f"The build took longer than its limit of {limit:.0f} s.") from None
        if code != 0:
            raise watch.verdict(last.tail) or last.failure(code, dockerfile=plan.text, builder=self._tool.version)


def _use_recipe(recipe: Recipe, private: Path, output: Callable[[bytes], None]) -> list[str]:
    """Write the Dockerfile where the repository cannot see it, and show it."""
    dockerfile = private / "Dockerfile"
    dockerfile.write_text(recipe.text, encoding="utf-8")
    # the repository's own list of what to leave out was written for a Dockerfile that it does not have
    (private / "Dockerfile.dockerignore").touch()
    shown = "".join(f"    {line}\n" for line in recipe.text.splitlines())
    notes = "".join(f"{note}\n" for note in recipe.notes)
    output(f"The repository has no Dockerfile. This one is made from its README:\n{shown}{notes}".encode())
    return [f"--file={dockerfile}", *(f"--secret=id={name},src={path}" for name, path in recipe.secrets.items())]


def _own_dockerfile(plan: BuildPlan, claim: Claim, source: Path, private: Path, namespace: str) -> list[str]:
    """The repository's Dockerfile, as it is or with cache mounts of its own, and what its steps are given.

    *namespace*: the repository's name that no other one can guess.
    """
    dockerfile = plan.dockerfile
    assert dockerfile is not None
    written = dockerfile.read_bytes().decode(errors="surrogateescape")  # line ends and odd bytes stay as they are
    if (text := separated(written, namespace)) != written:
        dockerfile = private / "Dockerfile"
        dockerfile.write_bytes(text.encode(errors="surrogateescape"))
        ignored = source / "Dockerfile.dockerignore"
        if ignored.is_file() and is_within(ignored, source):  # a link that leaves the repository is followed by nobody
            shutil.copyfile(ignored, private / "Dockerfile.dockerignore")
    # BuildKit finds the result of a step by its words, also one that a secret was used for. A host of this repository's
    # own is part of each step's key, and nobody else's build has it.
    argv = [f"--add-host={namespace}.invalid:127.0.0.1"]
    # public values, so they may stand here; as variables of the client they could redirect it (DOCKER_HOST)
    given = {name: value for name, value in claim.build_args.items() if not name.startswith("BUILDKIT_")}
    argv += [f"--build-arg={name}={value}" for name, value in {**given, NAMESPACE: namespace}.items()]
    for place, (name, value) in enumerate(claim.secrets.items()):
        file = private / f"secret-{place}"
        file.touch(mode=0o600)
        file.write_text(value)
        argv.append(f"--secret=id={name},src={file}")
    return [f"--file={dockerfile}", *argv]


def _checked(dockerfile: Path, source: Path) -> Path:
    """The repository's Dockerfile. Raises JobFailed where it is no file of the repository."""
    if not dockerfile.exists():
        raise JobFailed("dockerfile_unusable", "The Dockerfile is a link to a file that is not there.")
    if dockerfile.is_symlink() and not is_within(dockerfile, source):
        raise JobFailed("dockerfile_unusable", "The Dockerfile is a link that leaves the repository.")
    if dockerfile.is_dir():
        raise JobFailed("dockerfile_unusable", "The repository's Dockerfile is a directory; it has to be a file.")
    if dockerfile.stat().st_size > FILE_LIMIT_BYTES:  # it is read as a whole
        raise JobFailed("dockerfile_unusable", f"The Dockerfile is larger than {FILE_LIMIT_BYTES // 1024} KiB.")
    refuse_hidden(dockerfile.read_bytes())
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
