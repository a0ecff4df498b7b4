"""Start containers for jobs, and find what of ours is there."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from docker.models.containers import Container
from docker.types import DeviceRequest, LogConfig, Mount

from gpu_worker import build_groups
from gpu_worker.base_images import base_of
from gpu_worker.build_groups import BuildGroup
from gpu_worker.build_key import BuildKey
from gpu_worker.build_settings import BuildSettings
from gpu_worker.build_watch import Bounds
from gpu_worker.commands import Cancel
from gpu_worker.containers.connection import Conflict, Connection, Missing, engine_errors
from gpu_worker.containers.disk_usage import disk_usage
from gpu_worker.containers.image_store import ImageStore
from gpu_worker.containers.labels import (
    ASKED_LABEL,
    FACTS_LABEL,
    IMAGE,
    INPUTS_LABEL,
    LEASE_LABEL,
    ROLE_LABEL,
    SPACE,
    WORKER_LABEL,
    container_name,
    labels_of,
    ours,
)
from gpu_worker.containers.networks import JobNetworks
from gpu_worker.containers.runtime import ContainerRuntime
from gpu_worker.containers.volumes import CACHE_PATH, SpaceVolumes
from gpu_worker.environment import cache_environment, job_environment, not_of_an_image
from gpu_worker.errors import EngineError, EngineSilent, JobFailed
from gpu_worker.executor import Found, Prepared, Runtime
from gpu_worker.images import ImageBuilder, asked_inputs, find_build_tool, inputs_of, new_name, plan_build
from gpu_worker.job_limits import ContainerLimits, LimitDefaults, container_limits
from gpu_worker.journal import JobFacts, JobRecord
from gpu_worker.lent_images import Lender
from gpu_worker.process_identity import ProcessIdentity
from gpu_worker.protocol import Claim, Gpu

logger = logging.getLogger(__name__)

LOG_FILE_SIZE, LOG_FILES = "10m", "3"
HERE = b"The image of an earlier build is already here; nothing to build.\n"


class ContainerEngine:
    """Runs jobs as containers. All methods may be called from any thread."""

    name = "docker"

    def __init__(
        self,
        worker_id: str,
        *,
        limit_defaults: LimitDefaults | None = None,
        build: BuildSettings | None = None,
        keep_space_data: bool = True,
        base_url: str | None = None,
        build_key: BuildKey | None = None,
    ) -> None:
        """*keep_space_data* off: what a Space writes to /data and /cache goes with its container.

        *build_key* None: what builds keep in cache mounts is for this object's life.
        """
        self._build_key = build_key or BuildKey()
        self._worker_id = worker_id
        self._build = build or BuildSettings()
        self._limit_defaults = limit_defaults or LimitDefaults()
        self._engine = Connection(base_url)
        self._networks = JobNetworks(self._engine, worker_id)
        self.images = ImageStore(worker_id, self._engine)
        self.volumes = SpaceVolumes(self._engine, worker_id, kept=keep_space_data)
        self._builder: ImageBuilder | None = None

    # -- what the engine is ------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """Version, id, root directory and runtimes of the engine. Raises EngineSilent."""
        with engine_errors():
            return dict(self._engine().info())

    # -- build -------------------------------------------------------------------------------------------------

    def foundation(self, claim: Claim, source: Path) -> Mapping[str, str]:
        plan = plan_build(claim, source, self._build)
        base = base_of(plan.text, claim.build_args)
        try:
            return self._environment_of(base) if base is not None else {}
        except EngineSilent:
            raise
        except EngineError:
            return {}  # it will be fetched

    def at_hand(self, claim: Claim) -> Prepared | None:
        known = ((INPUTS_LABEL, inputs_of(claim)), (ASKED_LABEL, asked_inputs(claim, self._build)))
        for label, inputs in known:
            image_id = self.images.built_for(claim, label, inputs)
            if image_id is not None:
                return Prepared(image_id=image_id, environment=self._environment_of(image_id))
        return None

    def prepare(
        self,
        claim: Claim,
        source: Path,
        *,
        output: Callable[[bytes], None],
        cancel: Cancel,
        started: Callable[[ProcessIdentity | None], None],
    ) -> Prepared:
        plan = plan_build(claim, source, self._build)
        image_id = self.images.built_for(claim, INPUTS_LABEL, plan.inputs)
        if image_id is not None:
            output(HERE)
        else:
            if self._builder is None:
                lender = Lender(self.images.find_local, self._build.lent_images)
                self._builder = ImageBuilder(find_build_tool(), self.build_group, lender, self._build_key)
            labels = {
                **labels_of(self._worker_id, JobFacts.of(claim), IMAGE),
                INPUTS_LABEL: plan.inputs,
                ASKED_LABEL: "" if plan.recipe is None else asked_inputs(claim, self._build),
            }
            image_id = self._builder.build(
                plan, claim, source, labels=labels, output=output, cancel=cancel, started=started
            )
            self.images.name(image_id, new_name(claim))
        return Prepared(image_id=image_id, environment=self._environment_of(image_id))

    def _environment_of(self, image: str) -> dict[str, str]:
        with engine_errors():
            said = self._engine().images.get(image).attrs["Config"].get("Env") or []
        return {name: value for name, _, value in (entry.partition("=") for entry in said)}

    def build_group(self, buildx: bool) -> BuildGroup:
        """Where builds run and are bounded. Raises EngineSilent."""
        return build_groups.choose(self.describe(), self._build, buildx=buildx)

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
        self.images.note_use(prepared.image_id)
        name = container_name(facts)
        limits = self._limits(facts)
        own = job_environment(
            facts, variables=variables, secrets=secrets, port=facts.port, assigned=assigned, limits=limits
        )
        image = self._environment_of(prepared.image_id)
        environment: dict[str, str | None] = {
            **dict.fromkeys(not_of_an_image(image)),
            **{name: text for name, text in cache_environment(CACHE_PATH).items() if name not in image},
            **own,
        }
        mounts = self.volumes.mounts(facts)
        self._networks.ensure(facts)

        def create(image: str = prepared.image_id) -> Container:
            return self._create(name, image, facts, environment, assigned, limits, mounts)

        try:
            try:
                container = create()
            except Conflict:
                container = self._settle_conflict(name, facts) or create()
        except EngineSilent:
            raise  # it may be there all the same
        except (EngineError, JobFailed):
            with contextlib.suppress(EngineError):
                self._networks.remove(facts)  # nothing else would remember it
            raise
        self.volumes.open_up(container)
        runtime = self._runtime(container, facts)
        runtime.start()
        return runtime

    def _limits(self, facts: JobFacts) -> ContainerLimits:
        with engine_errors():
            return container_limits(facts.limits, self._limit_defaults, self._engine().info())

    def _create(
        self,
        name: str,
        image: str,
        facts: JobFacts,
        environment: Mapping[str, str | None],
        assigned: Sequence[Gpu],
        limits: ContainerLimits,
        mounts: list[Mount],
    ) -> Container:
        real = [gpu.uuid for gpu in assigned if not gpu.simulated]
        with engine_errors():
            # no restart policy: only this worker restarts anything, from what the server wants
            return self._engine().containers.create(
                image,
                name=name,
                # a name alone takes away what the image sets
                environment=[name if text is None else f"{name}={text}" for name, text in environment.items()],
                network=name,
                mounts=mounts,
                init=True,
                detach=True,
                labels={**labels_of(self._worker_id, facts, SPACE), FACTS_LABEL: facts.dump()},
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
        with engine_errors():
            other = self._engine().containers.get(name)
        labels = other.labels
        if labels.get(WORKER_LABEL) != self._worker_id or labels.get(ROLE_LABEL) != SPACE:
            raise JobFailed("start_failed", f"A container named {name} that is not ours is in the way.")
        if labels.get(LEASE_LABEL) == facts.lease:
            return other
        with engine_errors():
            other.remove(force=True, v=True)
        return None

    def note_good(self, record: JobRecord) -> None:
        self.images.note_good(record)

    # -- what is there -----------------------------------------------------------------------------------------

    def find(self, record: JobRecord) -> Runtime | None:
        with engine_errors():
            matches = self._ours(f"{LEASE_LABEL}={record.facts.lease}")
        return self._runtime(matches[0], record.facts) if matches else None

    def incarnation(self) -> str | None:
        """When the engine made its default network: at each of its starts. Unknown where it has none."""
        try:
            with engine_errors():
                return str(self._engine().networks.get("bridge").attrs["Created"])
        except Missing:
            return None

    def inventory(self) -> list[Found]:
        # One call, from the engine's list: an inspect of each would wait for whoever reads files of one of them.
        with engine_errors():
            containers = self._engine().containers.list(all=True, filters=ours(self._worker_id), sparse=True)
        found = []
        for container in containers:
            try:
                facts = JobFacts.parse((container.attrs.get("Labels") or {}).get(FACTS_LABEL, ""))
            except ValueError:
                logger.error(
                    "container without readable facts",
                    extra={"action": "container_unreadable", "container": container.short_id},
                )
                continue
            image = container.attrs.get("ImageID")
            found.append(Found(facts, str(container.short_id), str(container.status), image))
        return found

    def _runtime(self, container: Container, facts: JobFacts) -> ContainerRuntime:
        return ContainerRuntime(self._engine, self._networks, container, facts)

    def _ours(self, *labels: str) -> list[Container]:
        filters = ours(self._worker_id, *labels)
        return list(self._engine().containers.list(all=True, filters=filters, ignore_removed=True))

    def disk_usage(self) -> dict[str, int]:
        """Bytes that each running app has on the disk, by lease. Slow. Raises EngineError."""
        return disk_usage(self._engine, self._worker_id)

    def remove_stray_networks(self, leases: set[str]) -> None:
        """Remove our networks whose lease is not in *leases* and that no container of a job uses, at a worker's start.

        A former worker that was killed while it built has left the limits of its builds in force: they are lifted.
        """
        Bounds().lift(self.build_group(buildx=False))
        self._networks.remove_strays(leases)
