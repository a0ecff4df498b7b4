"""A bad configuration is told in a sentence."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from openface import checks

KEY = "k1:" + "ab" * 32


@pytest.fixture(autouse=True)
def a_database_is_configured(settings: Settings) -> None:
    settings.DATABASE_URL = "postgres://openface@127.0.0.1/openface_metrics"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"SECRET_KEY": ""}, "openface.E001"),
        ({"SECRET_KEY": "short"}, "openface.E001"),
        ({"OPENFACE_LEASE_KEYS": []}, "openface.E002"),
        ({"OPENFACE_LEASE_KEYS": ["k1:zz"]}, "openface.E002"),
        ({"OPENFACE_LEASE_KEYS": [KEY, KEY]}, "openface.E002"),
        ({"OPENFACE_ENCRYPTION_KEYS": ["ab" * 32]}, "openface.E003"),
        ({"OPENFACE_GPU_WORKER_HEARTBEAT_SECONDS": 0}, "openface.E010"),
        ({"OPENFACE_GPU_WORKER_HEARTBEAT_SECONDS": 31}, "openface.E011"),
        ({"OPENFACE_GPU_WORKER_LEASE_SECONDS": 20}, "openface.E012"),
        ({"PUBLIC_BASE_URL": "openface.example"}, "openface.E020"),
        ({"OPENFACE_RUNTIME_ORIGIN": "http://run.example/path"}, "openface.E020"),
        ({"PUBLIC_BASE_URL": "http://a:1", "OPENFACE_RUNTIME_ORIGIN": "http://a:1"}, "openface.E021"),
        ({"OPENFACE_TRUSTED_PROXIES": ["nginx"]}, "openface.E022"),
        ({"OPENFACE_GPU_WORKER_NETWORKS": ["192.168.1.0/33"]}, "openface.E022"),
    ],
    ids=lambda value: value if isinstance(value, str) else ",".join(value),
)
def test_each_fault_has_its_sentence(settings: Settings, change: dict[str, object], code: str) -> None:
    for name, value in change.items():
        setattr(settings, name, value)

    found = [
        problem
        for check in (checks.keys, checks.intervals, checks.addresses, checks.database)
        for problem in check(None)
    ]

    assert [problem.id for problem in found] == [code]
    assert found[0].msg.endswith((".", "renewals."))


def test_a_database_that_is_not_postgresql_is_refused(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    monkeypatch.setitem(settings.DATABASES["default"], "ENGINE", "django.db.backends.sqlite3")

    assert [problem.id for problem in checks.database(None)] == ["openface.E030"]


def test_no_database_at_all_says_how_to_get_one(settings: Settings) -> None:
    settings.DATABASE_URL = ""

    (problem,) = checks.database(None)
    assert "manage.py up" in str(problem.hint)


def test_a_good_configuration_is_silent(settings: Settings) -> None:
    for check in (checks.keys, checks.intervals, checks.addresses):
        assert check(None) == []
