"""The cast (owner, teammate, stranger, operator) and an empty place for repositories."""

from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from django.contrib.auth.models import AnonymousUser, User
from pytest_django import Settings

from jobs.lifecycle import claim_next
from spaces import git_http, launch
from spaces.models import LocalRepository
from tests.factories import WorkerFactory
from tests.spaces.git_server import Claimed
from tests.spaces.repositories import make_repository, make_space, space_of
from tests.spaces.trees import commit_tree


@pytest.fixture(autouse=True)
def repositories(settings: Settings, tmp_path: Path) -> Path:
    """Where this test's repositories lie."""
    settings.OPENFACE_REPOSITORIES_DIR = tmp_path / "repositories"
    return tmp_path / "repositories"


@pytest.fixture
def owner(db: None) -> User:
    return User.objects.create_user("alice")


@pytest.fixture
def teammate(db: None) -> User:
    return User.objects.create_user("bob")


@pytest.fixture
def stranger(db: None) -> User:
    return User.objects.create_user("carol")


@pytest.fixture
def operator(db: None) -> User:
    return User.objects.create_user("otto", is_staff=True)


@pytest.fixture
def nobody() -> AnonymousUser:
    return AnonymousUser()


@pytest.fixture
def server() -> Iterator[str]:
    """The application behind uvicorn; the address of its origin."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(git_http.application, log_level="critical", lifespan="off")
    uvicorn_server = uvicorn.Server(config)
    thread = threading.Thread(target=uvicorn_server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    uvicorn_server.should_exit = True
    thread.join(timeout=10)
    assert not thread.is_alive()


@pytest.fixture
def claimed() -> Callable[..., Claimed]:
    def claim(full_name: str = "alice/app", *, repository: LocalRepository | None = None, **wishes: Any) -> Claimed:
        user, _ = User.objects.get_or_create(username=full_name.split("/")[0])
        space = make_space(full_name, **wishes) if repository is None else space_of(repository)
        launch.start(space, user=user)
        worker = WorkerFactory.create()
        claim = claim_next(worker.pk, session=1, free_gpu=1, free_cpu=1, key=str(uuid.uuid4()))
        assert claim is not None
        return Claimed(worker, claim.lease)

    return claim


@pytest.fixture
def app(claimed: Callable[..., Claimed]) -> Callable[..., Claimed]:
    """Makes a job of alice/app (private) whose tree is what is given; submodules are Links."""

    def make(**tree: object) -> Claimed:
        row = make_repository("alice/app", files=None, visibility="private")
        commit_tree(row, {"app.py": "print()\n", **{name.replace("__", "."): what for name, what in tree.items()}})
        return claimed("alice/app", repository=row)

    return make
