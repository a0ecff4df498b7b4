"""The way to the engine, and what its errors mean to us."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator

import docker
import requests.exceptions
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.tls import TLSConfig

from gpu_worker.engine_address import EngineAddress, engine_address
from gpu_worker.errors import EngineError, EngineSilent
from gpu_worker.reasons import reason_of

logger = logging.getLogger(__name__)

ENGINE_TIMEOUT_SECONDS = 20  # per call; a create with a slow disk took 8 s


class Missing(EngineError):
    """The engine has no such object."""


class Conflict(EngineError):
    """The name is taken."""


class engine_errors:  # a context manager reads like a keyword here
    """Turns what the SDK raises into EngineSilent, Missing, Conflict or EngineError."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: object) -> None:
        match problem:
            case ImageNotFound() | NotFound():
                raise Missing(problem.explanation or str(problem)) from problem
            case APIError() if problem.response is not None and problem.response.status_code == 409:
                raise Conflict(problem.explanation or str(problem)) from problem
            case APIError():
                raise EngineError(problem.explanation or str(problem)) from problem
            case DockerException() | requests.exceptions.RequestException() | OSError():
                raise EngineSilent(f"The container engine does not answer: {reason_of(problem)}") from problem
            case _:
                return


def quietly(act: Callable[[], object]) -> None:
    """Do it if it can be done; what is left is met again at the next start."""
    try:
        act()
    except (DockerException, requests.exceptions.RequestException):
        logger.debug("left for the next time", exc_info=True)


class Connection:
    """One engine, seen from any thread: the SDK's sessions are not made to be shared, so each has its own."""

    def __init__(self, base_url: str | None = None) -> None:
        """*base_url*: the engine's address; None: where Docker's own command line would look (engine_address.py)."""
        self._base_url = base_url
        self._local = threading.local()

    def __call__(self) -> docker.DockerClient:
        """This thread's client. Raises EngineSilent."""
        client: docker.DockerClient | None = getattr(self._local, "client", None)
        if client is None:
            with engine_errors():
                if self._base_url is not None:
                    client = docker.DockerClient(base_url=self._base_url, timeout=ENGINE_TIMEOUT_SECONDS)
                else:
                    client = _client_at(engine_address())
            self._local.client = client
        return client

    @contextlib.contextmanager
    def patient(self, seconds: int) -> Iterator[None]:
        """Within, this thread's calls may take so long. Raises EngineSilent."""
        api = self().api
        usual, api.timeout = api.timeout, seconds
        try:
            yield
        finally:
            api.timeout = usual

    def close(self) -> None:
        """Close this thread's client, if it has one."""
        client: docker.DockerClient | None = self._local.__dict__.pop("client", None)
        if client is not None:
            client.close()


def _client_at(address: EngineAddress) -> docker.DockerClient:
    if address.context is None:
        return docker.from_env(timeout=ENGINE_TIMEOUT_SECONDS)
    tls: TLSConfig | bool = False
    if (kept := address.tls_dir) is not None:
        pair = (str(kept / "cert.pem"), str(kept / "key.pem"))
        tls = TLSConfig(client_cert=pair, ca_cert=str(kept / "ca.pem"), verify=address.verify)
    return docker.DockerClient(base_url=address.url, tls=tls, timeout=ENGINE_TIMEOUT_SECONDS)
