"""What all suites share: one embedded PostgreSQL per run, keys, and what a missing engine or browser means.

The worker's suite runs where Django is not installed: nothing here needs it before a test asks for the database.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

STATE_DIR = Path(tempfile.mkdtemp(prefix="openface-tests-"))
# As on a server: the path is open to the processes that drop their rights, the secrets in it are not.
STATE_DIR.chmod(0o755)
STATIC_DIR = STATE_DIR / "static"  # whitenoise warns of a missing one, and warnings are errors here
STATIC_DIR.mkdir()

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "openface.settings")
os.environ.update(
    SECRET_KEY="tests-only-" + "k" * 50,
    OPENFACE_LEASE_KEYS="k1:" + "ab" * 32,
    OPENFACE_ENCRYPTION_KEYS="e1:" + "cd" * 32,
    OPENFACE_STATE_DIR=str(STATE_DIR),
    OPENFACE_STATIC_ROOT=str(STATIC_DIR),
    OPENFACE_GPU_WORKERS_ENABLED="true",
    OPENFACE_ALLOW_SIMULATED_GPUS="true",
    OPENFACE_LOG_LEVEL="WARNING",
)

if importlib.util.find_spec("django"):
    import django

    # Now, because the suites' own conftest files import models while they are collected.
    django.setup()

REQUIRED = {name.strip() for name in os.environ.get("OPENFACE_REQUIRE", "").split(",") if name.strip()}


@cache
def docker_answers() -> bool:
    """Whether a container engine is there."""
    docker = shutil.which("docker")
    return bool(docker) and subprocess.run([str(docker), "info"], capture_output=True, check=False).returncode == 0


@cache
def browser_found() -> bool:
    """Whether Chromium is there."""
    return any(shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))


@cache
def nginx_found() -> bool:
    """Whether nginx is there."""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin") is not None


NEEDS = {
    "docker": (docker_answers, "no container engine answers (apt-get install docker.io, then start dockerd)"),
    "nginx": (nginx_found, "nginx is not installed (apt-get install nginx-light)"),
    "browser": (browser_found, "no Chromium is installed (apt-get install chromium)"),
}


def pytest_configure(config: pytest.Config) -> None:
    # Told to end (a time limit, a cancelled run), tear down as after Ctrl-C: suites here start servers and workers.
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what fetches much from the package index, unless it is asked for: a choice, not something missing."""
    if "OPENFACE_TEST_INDEX" in os.environ:
        return
    left_out = [item for item in items if item.get_closest_marker("index")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_runtest_setup(item: pytest.Item) -> None:
    for name, (is_there, why) in NEEDS.items():
        if item.get_closest_marker(name) and not is_there():
            if name in REQUIRED:
                pytest.fail(f"{name} is required here, and {why}", pytrace=False)
            pytest.skip(why)


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(STATE_DIR, ignore_errors=True)


@pytest.fixture(autouse=True)
def language_of_the_server() -> None:
    """The language of the last page that a test client asked for stays with the thread; no test begins with it."""
    from django.utils import translation

    translation.deactivate()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A running PostgreSQL: DATABASE_URL's, or an embedded one for this run."""
    if os.environ.get("DATABASE_URL"):
        yield os.environ["DATABASE_URL"]
        return
    from openface.embedded_postgres import EmbeddedPostgres

    server = EmbeddedPostgres(STATE_DIR / "postgres", durable=False)
    url = server.start()
    yield url
    server.stop()


@pytest.fixture(scope="session")
def django_db_modify_db_settings(postgres_url: str) -> None:
    """Point Django at that server before pytest-django makes the test database."""
    import environ
    from django.conf import settings
    from django.db import connections

    wanted = environ.Env.db_url_config(postgres_url)
    for key in ("NAME", "USER", "PASSWORD", "HOST", "PORT"):
        connections.databases["default"][key] = wanted[key]
    settings.OPENFACE_DIRECT_DATABASE_URL = postgres_url


@pytest.fixture
def database_url(transactional_db: None, postgres_url: str) -> str:
    """The URL of the test database itself, for other processes (they see committed rows only)."""
    from django.db import connection

    return urlsplit(postgres_url)._replace(path="/" + str(connection.settings_dict["NAME"])).geturl()


@pytest.fixture
def at_once() -> Callable[[Iterable[Callable[[], Any]]], list[Any]]:
    """Run functions in threads, each on a connection of its own; return results and exceptions in order."""

    from django.db import connection

    def run(functions: Iterable[Callable[[], Any]], threads: int = 16) -> list[Any]:
        def one(function: Callable[[], Any]) -> Any:
            try:
                return function()
            except Exception as error:  # handed to the test as a result
                return error
            finally:
                connection.close()

        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(one, functions))

    return run
