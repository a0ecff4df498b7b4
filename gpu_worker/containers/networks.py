"""One network per job, in which nothing but its container is, and a worker that runs in a container itself."""

from __future__ import annotations

import re

from docker.models.networks import Network

from gpu_worker.containers.connection import Connection, engine_errors, quietly
from gpu_worker.containers.labels import LEASE_LABEL, SPACE, container_name, labels_of, ours
from gpu_worker.containers.own_container import own_container
from gpu_worker.journal import JobFacts

ICC = "com.docker.network.bridge.enable_icc"  # containers may talk; a worker in one has to reach the job's


class JobNetworks:
    """The networks of one worker's jobs. Raises EngineError throughout."""

    def __init__(self, engine: Connection, worker_id: str) -> None:
        self._engine, self._worker_id = engine, worker_id

    def ensure(self, facts: JobFacts) -> None:
        """The job's network, made if it is not there."""
        name = container_name(facts)
        with engine_errors():
            if not self._named(name):
                self._engine().networks.create(
                    name,
                    driver="bridge",
                    check_duplicate=True,
                    labels=labels_of(self._worker_id, facts, SPACE),
                    options={ICC: "false" if own_container(self._engine()) is None else "true"},
                )

    def join(self, facts: JobFacts) -> None:
        """Let this process reach the job's container: from the host it does already, from a container it must join."""
        with engine_errors():
            own = own_container(self._engine())
            if own is None:
                return
            for network in self._engine().networks.list(names=[_exactly(container_name(facts))], greedy=True):
                if own not in (network.attrs.get("Containers") or {}):
                    network.connect(own)

    def remove(self, facts: JobFacts) -> None:
        """Remove the job's network; we leave it first. Nothing there is fine."""
        with engine_errors():
            for network in self._named(container_name(facts)):
                if (network.attrs.get("Labels") or {}).get(LEASE_LABEL) == facts.lease:
                    self._leave(str(network.id))
                    network.remove()

    def remove_strays(self, leases: set[str]) -> None:
        """Remove our networks whose lease is not in *leases* and that no container of a job uses."""
        with engine_errors():
            networks = self._engine().networks.list(filters=ours(self._worker_id))
        for network in networks:
            if (network.attrs.get("Labels") or {}).get(LEASE_LABEL) not in leases:
                self._leave(str(network.id))
                quietly(network.remove)

    def _named(self, name: str) -> list[Network]:
        return list(self._engine().networks.list(names=[_exactly(name)]))

    def _leave(self, network_id: str) -> None:
        own = own_container(self._engine())
        if own is not None:
            quietly(lambda: self._engine().networks.get(network_id).disconnect(own, force=True))


def _exactly(name: str) -> str:
    """The engine matches names by regular expression."""
    return f"^{re.escape(name)}$"
