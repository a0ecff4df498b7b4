"""The cast (owner, teammate, stranger, operator) and an empty place for repositories."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.contrib.auth.models import AnonymousUser, User
from pytest_django import Settings


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
