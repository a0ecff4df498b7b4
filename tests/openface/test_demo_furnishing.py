"""The demo's database can be furnished at each start: nothing is made twice, and a lost door key is replaced."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import pytest
from django.contrib.auth import authenticate, get_user_model

from openface.demo.furnishing import ADMIN, admit_admin, admit_workers
from openface.demo.machines import GPU_BOX, LOCAL, SIMULATED_GPUS, Machine
from openface.installation import Installation
from workers import enrollment
from workers.models import EnrollmentToken, Worker
from workers.reports import Enrollment

pytestmark = pytest.mark.django_db


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    return Installation(tmp_path, port_base=20000)


def enroll(installation: Installation, machine: Machine) -> Worker:
    """Do what the worker does: swap the token for a credential and keep it."""
    token = machine.token_file(installation).read_text().strip()
    enrolled = enrollment.enroll(
        Enrollment(token=token, nonce=secrets.token_hex(16), hostname="here", version="1", gateway_url=None),
        address="127.0.0.1",
    )
    kept = machine.directory(installation) / "credential.json"
    kept.write_text(json.dumps({"credential": str(enrolled.credential)}))
    return enrolled.worker


def test_the_administrator_can_sign_in_and_keeps_a_changed_password(installation: Installation) -> None:
    password = admit_admin(installation)
    user = authenticate(username=ADMIN, password=password)
    assert user is not None
    assert user.is_superuser
    user.set_password("my own choice")
    user.save()

    assert admit_admin(installation) == password
    assert authenticate(username=ADMIN, password="my own choice") is not None
    assert get_user_model().objects.count() == 1


def test_each_worker_gets_a_token_for_its_own_gateway(installation: Installation) -> None:
    admit_workers(installation, [LOCAL, GPU_BOX])

    local, gpu_box = enroll(installation, LOCAL), enroll(installation, GPU_BOX)

    assert (local.local, local.gateway_url) == (True, "http://127.0.0.1:20002")
    assert (gpu_box.local, gpu_box.gateway_url) == (False, "http://127.0.0.1:20003")
    assert oct(LOCAL.token_file(installation).stat().st_mode)[-3:] == "600"


def test_an_enrolled_worker_gets_no_second_token(installation: Installation) -> None:
    admit_workers(installation, [LOCAL])
    enroll(installation, LOCAL)

    admit_workers(installation, [LOCAL])

    assert EnrollmentToken.objects.count() == 1


def test_moved_ports_give_the_same_worker_a_new_address(installation: Installation) -> None:
    admit_workers(installation, [LOCAL])
    first = enroll(installation, LOCAL)
    moved = Installation(installation.state_dir, port_base=21000)

    admit_workers(moved, [LOCAL])
    second = enroll(moved, LOCAL)

    assert second.pk == first.pk
    assert second.gateway_url == "http://127.0.0.1:21002"


def test_a_credential_of_another_database_is_replaced(installation: Installation) -> None:
    admit_workers(installation, [LOCAL])
    stranger = {"credential": f"ofw_{'0' * 32}_{'A' * 43}"}
    (LOCAL.directory(installation) / "credential.json").write_text(json.dumps(stranger))

    admit_workers(installation, [LOCAL])

    assert not (LOCAL.directory(installation) / "credential.json").exists()
    assert enroll(installation, LOCAL).name == LOCAL.name


def test_simulated_gpus_say_that_they_are() -> None:
    gpus = SIMULATED_GPUS["gpus"]

    assert isinstance(gpus, list)
    assert all(gpu["simulated"] is True for gpu in gpus)
    assert len({gpu["uuid"] for gpu in gpus}) == len(gpus)
