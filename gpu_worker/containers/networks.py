"""One network per job, in which nothing but its container is, and a worker that runs in a container itself."""

from __future__ import annotations

import logging
import re

from docker.models.networks import Network

from gpu_worker.containers.connection import Connection, engine_errors, quietly
from gpu_worker.containers.labels import LEASE_LABEL, SPACE, container_name, labels_of, ours
from gpu_worker.containers.own_container import own_container
from gpu_worker.journal import JobFacts

logger = logging.getLogger(__name__)

ICC = "com.docker.network.bridge.enable_icc"  # containers may talk; a worker in one has to reach the job's


class JobNetworks:
    """The networks of one worker's jobs. Raises EngineError throughout."""

    def __init__(self, engine: Connection, worker_id: str) -> None:
        self._engine, self._worker_id = engine, worker_id

    def ensure(self, facts: JobFacts) -> None:
        """The job's network, made if it is not there, and anew where a worker of the other kind made it.

        A worker in a container can reach nothing in a network that one on the host has made.
        """
        name = container_name(facts)
        wanted = "false" if own_container(self._engine()) is None else "true"
        with engine_errors():
            found = self._named(name)
            if found and not self._made_for_another(found[0], facts, wanted):
                return
            for network in found:
                network.remove()
            self._engine().networks.create(
                name,
                driver="bridge",
                check_duplicate=True,
                labels=labels_of(self._worker_id, facts, SPACE),
                options={ICC: wanted},
            )

    def _made_for_another(self, network: Network, facts: JobFacts, wanted: str) -> bool:
        """Whether it has the wrong setting, is ours, and nothing uses it; where something does, that is said."""
        if (network.attrs.get("Options") or {}).get(ICC) == wanted:
            return False
        if (network.attrs.get("Labels") or {}).get(LEASE_LABEL) != facts.lease:
            return False
        # one that was only created is none of them: it looks for its network by name when it starts
        users = self._engine().containers.list(all=True, filters={"network": str(network.id)}, sparse=True)
        if users:
            _warn(network)
        return not users

    def join(self, facts: JobFacts) -> None:
        """Let this process reach the job's container: from the host it does already, from a container it must join."""
        with engine_errors():
            own = own_container(self._engine())
            if own is None:
                return
            for network in self._engine().networks.list(names=[_exactly(container_name(facts))], greedy=True):
                if (network.attrs.get("Options") or {}).get(ICC) == "false":
                    _warn(network)
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


def _warn(network: Network) -> None:
    logger.warning(
        "network made by a worker of the other kind (host or container); a restart of the Space makes it anew",
        extra={"action": "network_unfit", "network": network.name},
    )


def _exactly(name: str) -> str:
    """The engine matches names by regular expression."""
    return f"^{re.escape(name)}$"
