"""The container engine: the only module that imports ``docker``.

Everything made here carries our labels, and nothing without them is ever touched. One network per job, no published
port, no host mount, no socket, no capability; only the worker restarts anything.
"""

from __future__ import annotations

import calendar
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import docker
import requests.exceptions
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.models.containers import Container
from docker.types import DeviceRequest, LogConfig

from gpu_worker.commands import Cancel
from gpu_worker.environment import job_environment
from gpu_worker.errors import EngineError, EngineSilent, JobFailed
from gpu_worker.executor import Found, Prepared, Runtime, RuntimeState
from gpu_worker.images import ImageBuilder, find_build_tool, image_tag
from gpu_worker.job_limits import LimitDefaults, container_limits
from gpu_worker.journal import JobFacts, JobRecord
from gpu_worker.process_identity import ProcessIdentity
from gpu_worker.protocol import Claim, Gpu
from gpu_worker.sockets import listening_sockets

logger = logging.getLogger(__name__)

ENGINE_TIMEOUT_SECONDS = 20  # per call; a create with a slow disk took 8 s
LOG_FILE_SIZE, LOG_FILES = "10m", "3"
STOP_POLL_SECONDS = 0.1
ROLE_LABEL = "openface.role"  # an image passes its labels on to containers that people start from it: role tells
FACTS_LABEL = "openface.facts"


class ContainerEngine:
    """Runs jobs as containers. All methods may be called from any thread."""

    name = "docker"

    def __init__(
        self, worker_id: str, *, limit_defaults: LimitDefaults | None = None, base_url: str | None = None
    ) -> None:
        self._worker_id = worker_id
        self._limit_defaults = limit_defaults or LimitDefaults()
        self._base_url = base_url
        self._local = threading.local()
        self._builder: ImageBuilder | None = None

    # -- what the engine is ------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """Version, id, root directory and runtimes of the engine. Raises EngineSilent."""
        with _engine_errors():
            return dict(self._client().info())

    # -- build -------------------------------------------------------------------------------------------------

    def prepare(
        self,
        claim: Claim,
        source: Path,
        *,
        output: Callable[[bytes], None],
        cancel: Cancel,
        started: Callable[[ProcessIdentity | None], None],
    ) -> Prepared:
        present = self.find_image(claim)
        if present is not None:
            output(f"Image {image_tag(claim)} is already here; nothing to build.\n".encode())
            return Prepared(image_id=present)
        if self._builder is None:
            self._builder = ImageBuilder(find_build_tool())
        labels = {**self._labels(JobFacts.of(claim)), ROLE_LABEL: "image"}
        image_id = self._builder.build(claim, source, labels=labels, output=output, cancel=cancel, started=started)
        return Prepared(image_id=image_id)

    def find_image(self, claim: Claim) -> str | None:
        """The id of the image that an earlier build of the same inputs left, if it is ours. Raises EngineSilent."""
        try:
            with _engine_errors():
                image = self._client().images.get(image_tag(claim))
        except EngineSilent:
            raise
        except EngineError:
            return None
        ours = image.labels.get("openface.worker") and image.labels.get("openface.repository") == claim.repository_id
        same = image.labels.get("openface.revision") == claim.revision
        return str(image.id) if ours and same else None

    # -- run ---------------------------------------------------------------------------------------------------

    def launch(
        self,
        record: JobRecord,
        prepared: Prepared,
        *,
        variables: Mapping[str, str],
        secrets: Mapping[str, str],
        assigned: Sequence[Gpu],
    ) -> Runtime:
        facts = record.facts
        if prepared.image_id is None:
            raise JobFailed("start_failed", "There is no image to start.")
        environment = job_environment(facts, variables=variables, secrets=secrets, port=facts.port, assigned=assigned)
        name = container_name(facts)
        with _engine_errors():
            self._ensure_network(facts)
        try:
            with _engine_errors():
                container = self._create(name, prepared.image_id, facts, environment, assigned)
        except _Conflict:
            container = self._settle_conflict(name, facts) or self._create(
                name, prepared.image_id, facts, environment, assigned
            )
        runtime = ContainerRuntime(self._client, container, facts)
        runtime.start()
        return runtime

    def _create(
        self, name: str, image: str, facts: JobFacts, environment: Mapping[str, str], assigned: Sequence[Gpu]
    ) -> Container:
        limits = container_limits(facts.limits, self._limit_defaults, self._client().info())
        real = [gpu.uuid for gpu in assigned if not gpu.simulated]
        # no restart policy: only this worker restarts anything, from what the server wants
        return self._client().containers.create(
            image,
            name=name,
            environment=dict(environment),
            network=name,
            init=True,
            detach=True,
            labels={**self._labels(facts), ROLE_LABEL: "space", FACTS_LABEL: facts.dump()},
            cap_drop=["ALL"],
            security_opt=["no-new-privileges:true"],
            privileged=False,
            pids_limit=limits.pids,
            mem_limit=f"{limits.memory_mib}m",
            memswap_limit=f"{limits.memory_mib}m",  # no swap beside the limit
            nano_cpus=int(limits.cpus * 1e9),
            shm_size=f"{facts.limits.shm_mib}m" if facts.limits.shm_mib else None,
            log_config=LogConfig(type="json-file", config={"max-size": LOG_FILE_SIZE, "max-file": LOG_FILES}),
            device_requests=[DeviceRequest(device_ids=real, capabilities=[["gpu"]])] if real else None,
        )

    def _settle_conflict(self, name: str, facts: JobFacts) -> Container | None:
        """The name is taken: the container of this very lease is taken over, an older one of ours removed."""
        with _engine_errors():
            other = self._client().containers.get(name)
        labels = other.labels
        if labels.get("openface.worker") != self._worker_id or labels.get(ROLE_LABEL) != "space":
            raise JobFailed("start_failed", f"A container named {name} that is not ours is in the way.")
        if labels.get("openface.lease") == facts.lease:
            return other
        with _engine_errors():
            other.remove(force=True, v=True)
        return None

    def _ensure_network(self, facts: JobFacts) -> None:
        name = container_name(facts)
        if not self._client().networks.list(names=[f"^{re.escape(name)}$"]):
            self._client().networks.create(
                name,
                driver="bridge",
                check_duplicate=True,
                labels={**self._labels(facts), ROLE_LABEL: "space"},
                options={"com.docker.network.bridge.enable_icc": "false"},
            )

    # -- what is there -----------------------------------------------------------------------------------------

    def find(self, record: JobRecord) -> Runtime | None:
        with _engine_errors():
            matches = self._ours(f"openface.lease={record.facts.lease}")
        return ContainerRuntime(self._client, matches[0], record.facts) if matches else None

    def inventory(self) -> list[Found]:
        with _engine_errors():
            containers = self._ours()
        found = []
        for container in containers:
            try:
                facts = JobFacts.parse(container.labels.get(FACTS_LABEL, ""))
            except ValueError:
                logger.error(
                    "container without readable facts",
                    extra={"action": "container_unreadable", "container": container.name},
                )
                continue
            image = container.attrs.get("Image") or container.attrs.get("ImageID")
            found.append(Found(facts, str(container.short_id), str(container.status), image))
        return found

    def _ours(self, *labels: str) -> list[Container]:
        filters: dict[str, str | list[str] | bool] = {
            "label": [f"openface.worker={self._worker_id}", f"{ROLE_LABEL}=space", *labels]
        }
        return list(self._client().containers.list(all=True, filters=filters, ignore_removed=True))

    def remove_stray_networks(self, leases: set[str]) -> None:
        """Remove our networks whose lease is not in *leases* and that no container uses."""
        filters = {"label": [f"openface.worker={self._worker_id}", f"{ROLE_LABEL}=space"]}
        with _engine_errors():
            networks = self._client().networks.list(filters=filters)
        for network in networks:
            if (network.attrs.get("Labels") or {}).get("openface.lease") not in leases:
                _quietly(network.remove)

    def _labels(self, facts: JobFacts) -> dict[str, str]:
        return {
            "openface.worker": self._worker_id,
            "openface.lease": facts.lease,
            "openface.job": facts.job,
            "openface.repository": facts.repository_id,
            "openface.revision": facts.revision,
            "openface.attempt": str(facts.attempt),
            "openface.gpus": ",".join(facts.gpus),
        }

    def _client(self) -> docker.DockerClient:
        """One client per thread: the SDK's sessions are not made to be shared."""
        client: docker.DockerClient | None = getattr(self._local, "client", None)
        if client is None:
            with _engine_errors():
                if self._base_url is not None:
                    client = docker.DockerClient(base_url=self._base_url, timeout=ENGINE_TIMEOUT_SECONDS)
                else:
                    client = docker.from_env(timeout=ENGINE_TIMEOUT_SECONDS)
            self._local.client = client
        return client


class ContainerRuntime:
    """One container of ours."""

    def __init__(self, client: Callable[[], docker.DockerClient], container: Container, facts: JobFacts) -> None:
        self._client = client
        self._id = str(container.id)
        self._facts = facts
        self._image_id = _text(container.attrs.get("Image") or container.attrs.get("ImageID"))

    @property
    def reference(self) -> str:
        return self._id[:12]

    @property
    def image_id(self) -> str | None:
        return self._image_id

    def address(self) -> tuple[str, int]:
        container = self._inspect()
        networks: Mapping[str, Any] = container.attrs["NetworkSettings"]["Networks"]
        _join_network(self._client(), container_name(self._facts))
        for network in networks.values():
            if network.get("IPAddress"):
                return str(network["IPAddress"]), self._facts.port
        raise EngineError("the container has no address")

    def state(self) -> RuntimeState:
        try:
            state = self._inspect().attrs["State"]
        except _Missing:
            return RuntimeState("gone")
        status = str(state["Status"])
        if status in ("running", "paused", "created"):
            return RuntimeState(status)
        if status == "restarting":
            return RuntimeState("running")
        return RuntimeState("exited", exit_code=int(state["ExitCode"]), oom_killed=bool(state["OOMKilled"]))

    def start(self) -> None:
        try:
            with _engine_errors():
                self._client().api.start(self._id)
        except EngineSilent:
            raise
        except EngineError as problem:
            raise JobFailed("start_failed", _explain_start(str(problem))) from problem

    def follow(self, position: str | None, stop: Cancel) -> Iterator[tuple[bytes, str]]:
        """The json-file log after *position*, ``<engine time>#<pieces of that time already seen>``."""
        last, seen = _parse_position(position)
        while not stop.is_set():
            try:
                count = 0
                for frame in self._frames(last):
                    stamp, _, payload = frame.partition(b" ")
                    moment = stamp.decode("ascii", "replace")
                    if moment < last:
                        continue
                    count = count + 1 if moment == last else 1
                    if moment == last and count <= seen:
                        continue
                    last, seen = moment, count
                    yield payload, f"{moment}#{count}"
                    if stop.is_set():
                        return
            except EngineSilent:
                pass
            except EngineError:
                return
            state = _attempt(self.state)
            if state is not None and state.status in ("exited", "gone"):
                return
            time.sleep(STOP_POLL_SECONDS)

    def _frames(self, last: str) -> Iterator[bytes]:
        with _engine_errors():
            since = _epoch_seconds(last)
            yield from (
                self._client()
                .containers.get(self._id)
                .logs(
                    stream=True,
                    follow=True,
                    timestamps=True,
                    stdout=True,
                    stderr=True,
                    **({"since": since} if since else {}),
                )
            )

    def environment(self) -> Mapping[str, str]:
        pairs = (entry.partition("=") for entry in self._inspect().attrs["Config"]["Env"] or [])
        return {name: value for name, _, value in pairs}

    def listening(self) -> Sequence[str] | None:
        pid = self._inspect().attrs["State"].get("Pid")
        return listening_sockets(int(pid)) if pid else None

    def stop(self, grace_seconds: float) -> None:
        state = self.state()
        if state.status == "paused":
            with _engine_errors():
                self._client().api.unpause(self._id)  # a frozen process hears no signal
        if state.status not in ("running", "paused"):
            return
        self._kill("SIGTERM")
        deadline = time.monotonic() + grace_seconds
        while self.state().status == "running" and time.monotonic() < deadline:
            time.sleep(STOP_POLL_SECONDS)
        if self.state().status == "running":
            self._kill("SIGKILL")

    def _kill(self, signal: str) -> None:
        try:
            with _engine_errors():
                self._client().api.kill(self._id, signal)
        except EngineSilent:
            raise
        except EngineError:
            pass  # it ended by itself in between

    def remove(self) -> None:
        client = self._client()
        try:
            with _engine_errors():
                client.containers.get(self._id).remove(force=True, v=True)
        except _Missing:
            pass
        name = container_name(self._facts)
        with _engine_errors():
            for network in client.networks.list(names=[f"^{re.escape(name)}$"]):
                if (network.attrs.get("Labels") or {}).get("openface.lease") == self._facts.lease:
                    _leave_network(client, network.id)
                    network.remove()

    def _inspect(self) -> Container:
        with _engine_errors():
            return self._client().containers.get(self._id)


def container_name(facts: JobFacts) -> str:
    """Name of a job's container and of its network. Includes the attempt, so that two never collide."""
    readable = re.sub(r"[^a-z0-9]+", "-", facts.repo.lower()).strip("-")[:30]
    return f"openface-{readable}-{facts.lease[:8]}-{facts.attempt}"


# ---- a containerised worker joins the job's network -------------------------------------------------------------


def _own_container(client: docker.DockerClient) -> str | None:
    if not Path("/.dockerenv").exists():
        return None
    try:
        return str(client.containers.get(socket.gethostname()).id)
    except DockerException:
        return None  # the engine is not the one we run under


def _join_network(client: docker.DockerClient, name: str) -> None:
    own = _own_container(client)
    if own is not None:
        for network in client.networks.list(names=[f"^{re.escape(name)}$"], greedy=True):
            if own not in (network.attrs.get("Containers") or {}):
                network.connect(own)


def _leave_network(client: docker.DockerClient, network_id: str | None) -> None:
    own = _own_container(client)
    if own is not None and network_id is not None:
        _quietly(lambda: client.networks.get(network_id).disconnect(own, force=True))


# ---- errors ----------------------------------------------------------------------------------------------------


class _Missing(EngineError):
    """The engine has no such object."""


class _Conflict(EngineError):
    """The name is taken."""


class _engine_errors:  # a context manager reads like a keyword here
    """Turns what the SDK raises into EngineSilent, _Missing, _Conflict or EngineError."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: object) -> None:
        match problem:
            case ImageNotFound() | NotFound():
                raise _Missing(problem.explanation or str(problem)) from problem
            case APIError() if problem.response is not None and problem.response.status_code == 409:
                raise _Conflict(problem.explanation or str(problem)) from problem
            case APIError():
                raise EngineError(problem.explanation or str(problem)) from problem
            case DockerException() | requests.exceptions.RequestException() | OSError():
                raise EngineSilent(f"The container engine does not answer: {problem}") from problem
            case _:
                return


def _explain_start(text: str) -> str:
    if "could not select device driver" in text:
        return f"The engine has no GPU support; install the NVIDIA Container Toolkit and restart Docker. ({text})"
    return f"The engine could not start the container: {text}"


def _quietly(act: Callable[[], object]) -> None:
    try:
        act()
    except (DockerException, requests.exceptions.RequestException):
        logger.debug("left for the next time", exc_info=True)


def _attempt(look: Callable[[], RuntimeState]) -> RuntimeState | None:
    try:
        return look()
    except EngineError:
        return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


# ---- log positions ---------------------------------------------------------------------------------------------


def _parse_position(position: str | None) -> tuple[str, int]:
    moment, _, count = (position or "").partition("#")
    return moment, int(count) if count.isdecimal() else 0


def _epoch_seconds(moment: str) -> int | None:
    """Whole seconds of an engine time like 2026-01-02T03:04:05.678901234Z; the SDK's ``since`` knows no finer."""
    if not moment:
        return None
    try:
        return calendar.timegm(time.strptime(moment[:19], "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return None
