"""A running Space behind a worker's real gateway, and the data plane in front of it: the whole chain of two hops."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from gpu_worker.gateway import Gateway
from jobs.models import Job, Lease
from jobs.states import JobState
from jobs.tokens import runtime_token
from runtime_proxy import handover
from spaces.models import Space
from spaces.origin import place_of
from tests.factories import JobFactory, UptimeFactory, WorkerFactory
from tests.runtime_proxy.data_plane import DataPlane, listening, serving
from tests.runtime_proxy.nginx import HOST, PROXY, in_front_of
from tests.runtime_proxy.upstreams import Upstream, answering
from tests.spaces.repositories import make_space
from workers.models import Worker

PORTAL = "http://localhost:8090"


@pytest.fixture(autouse=True)
def _installation(settings: Settings, tmp_path: Path) -> None:
    settings.OPENFACE_REPOSITORIES_DIR = tmp_path / "repositories"
    settings.PUBLIC_BASE_URL = PORTAL


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    """An app whose answers the test decides."""
    with answering() as server:
        yield server


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    """The product's own gateway of a worker."""
    server = Gateway("127.0.0.1", 0)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def run_space(transactional_db: None, upstream: Upstream, gateway: Gateway) -> Callable[..., Job]:
    """Make a Space, with a job that runs the upstream behind the gateway unless told otherwise."""
    UptimeFactory.create()

    def make(
        full_name: str = "alice/app", *, visibility: str = "public", state: str = "running", **wishes: object
    ) -> Job:
        space = make_space(full_name, visibility=visibility)
        worker = wishes.pop("worker", None) or WorkerFactory.create(name="gpu1", gateway_url=url_of(gateway))
        port = wishes.pop("port", upstream.port)
        assert isinstance(port, int)
        job = lease_to(space, worker, state=state, **wishes)
        lease = job.leases.get()
        gateway.open(str(lease.pk), ("127.0.0.1", port), hashlib.sha256(runtime_token(lease).encode()).hexdigest())
        return job

    return make


def url_of(gateway: Gateway) -> str:
    """The address under which the control plane reaches it."""
    return f"http://127.0.0.1:{gateway.port}"


def lease_to(space: Space, worker: object, *, state: str = "running", **wishes: object) -> Job:
    """Give the Space a job in that state, leased to the worker."""
    assert isinstance(worker, Worker)
    ran = timezone.now() if state in (JobState.RUNNING, JobState.UNAVAILABLE) else None
    job = JobFactory.create(space=space, state=state, worker=worker, first_ran_at=ran, attempts=1, **wishes)
    Lease.objects.create(
        job=job,
        worker=worker,
        attempt=1,
        session=worker.session,
        idempotency_key=str(job.pk),
        key_id="k1",
        expires_at=timezone.now() + timedelta(hours=1),
    )
    return job


@pytest.fixture
def data_plane(
    transactional_db: None, database_url: str, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> Iterator[DataPlane]:
    """The product's own entry point, served."""
    monkeypatch.setitem(os.environ, "OPENFACE_DATABASE_POOL", "false")  # its threads end with the test
    from openface import data_asgi, pg_listener

    monkeypatch.setattr(pg_listener, "start", lambda: None)
    with listening(database_url), serving(data_asgi.application) as server:
        settings.OPENFACE_RUNTIME_ORIGIN = f"http://{server.host}"
        yield server


@pytest.fixture
def nginx(data_plane: DataPlane, settings: Settings, tmp_path: Path) -> Iterator[DataPlane]:
    """The proxy that the compose files come with, in front of the data plane."""
    settings.OPENFACE_RUNTIME_ORIGIN = f"http://{HOST}"
    settings.OPENFACE_TRUSTED_PROXIES = [PROXY]
    with in_front_of(data_plane, tmp_path) as proxy:
        yield proxy


@pytest.fixture
def signed_in() -> Callable[..., str]:
    """Sign a user in at the portal and on the runtime origin; return the Cookie header for the latter.

    Where each Space has a host of its own, the session is for that of `space`.
    """

    def sign_in(user: User, space: str = "alice/app") -> str:
        portal = Client()
        portal.force_login(user)
        nonce = handover.new_nonce()
        key = portal.session.session_key
        assert key is not None
        place = place_of(*space.split("/"))
        code = handover.issue(user, parent_key=key, browser_hash=handover.digest(nonce), place=place)
        session = handover.exchange(code, nonce=nonce)
        return f"{handover.session_cookie_name()}={session}"

    return sign_in
