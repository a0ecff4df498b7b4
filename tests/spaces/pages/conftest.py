"""Browsers of the cast, without a browser: Django's test client, signed in or not."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.factories import WorkerFactory
from workers.models import Worker


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def alice(owner: User) -> Client:
    """The owner of the Spaces under alice/."""
    return signed_in(owner)


@pytest.fixture
def carol(stranger: User) -> Client:
    """Signed in, with no right of her own."""
    return signed_in(stranger)


@pytest.fixture
def otto(operator: User) -> Client:
    """An operator."""
    return signed_in(operator)


@pytest.fixture
def passer_by(db: None) -> Client:
    """Not signed in."""
    return Client()


@pytest.fixture
def worker(db: None) -> Worker:
    """A local worker with room."""
    return WorkerFactory.create(name="cpu1")
