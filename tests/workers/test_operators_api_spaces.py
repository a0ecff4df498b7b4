"""The operators' API on Spaces: placement and queue, for members of staff and nobody else."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from jobs.models import AuditEvent
from spaces.models import Space
from tests.factories import GpuWorkerFactory, JobFactory, RequirementFactory, UptimeFactory
from tests.spaces.pages import runs
from tests.spaces.repositories import make_space
from tests.workers.conftest import WireWorker

pytestmark = pytest.mark.django_db

URL = "/api/v1/fleet/spaces/alice/app/placement"
QUEUE = "/api/v1/fleet/queue"


@pytest.fixture(autouse=True)
def world(settings: Any, tmp_path: Any) -> Space:
    settings.OPENFACE_REPOSITORIES_DIR = tmp_path / "repositories"
    UptimeFactory.create()
    GpuWorkerFactory.create(name="gpu1")
    return make_space("alice/app", topics=("space", "gpu"), visibility="private")


@pytest.fixture
def staff(db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_user("otto", is_staff=True))
    return client


def put(client: Client, url: str = URL, **body: Any) -> Any:
    return client.put(url, body, content_type="application/json")


def test_it_says_how_a_space_is_placed(staff: Client) -> None:
    answer = staff.get(URL)

    assert answer.status_code == 200
    assert answer.json() == {
        "space": "alice/app",
        "placement": "automatic",
        "worker": None,
        "requirement": {
            "kind": "gpu",
            "gpu_count": 1,
            "vram_mib": None,
            "exclusive": True,
            "features": [],
            "worker": None,
        },
        "needs": "a whole GPU",
        "outlook": {"code": "about_to_start", "detail": "Could start now on gpu1.", "ready": ["gpu1"]},
        "effects": ["This is how it is placed now."],
        "workers": [
            {
                "worker": "gpu1",
                "gpu": "",
                "code": "would_fit",
                "reason": "gpu1 can take it now.",
                "never": False,
            }
        ],
        "changed": False,
        "moved": [],
    }


def test_it_sets_a_placement_once(staff: Client, world: Space) -> None:
    job = runs.submit(world, requirement=runs.GPU)

    first = put(staff, placement="worker", worker="gpu1", reason="its data is there")
    second = put(staff, placement="worker", worker="gpu1")

    assert (first.status_code, first.json()["changed"], first.json()["moved"]) == (200, True, [str(job.pk)])
    assert (second.status_code, second.json()["changed"], second.json()["moved"]) == (200, False, [])
    event = AuditEvent.objects.get()
    assert (event.act, event.actor_name, event.reason, event.address) == (
        "space_placement",
        "otto",
        "its data is there",
        "127.0.0.1",
    )


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"placement": "moon"}, "placement"),
        ({}, "placement"),
        ({"placement": "worker"}, "placement"),
        ({"placement": "worker", "worker": "nobody"}, "placement"),
        ({"placement": "worker", "worker": 5}, "worker"),
        ({"placement": "cpu", "worker": "gpu1"}, "placement"),
    ],
)
def test_a_wish_that_means_nothing_is_422_with_the_field(staff: Client, body: dict[str, Any], field: str) -> None:
    answer = put(staff, **body)

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert list(answer.json()["errors"]) == [field]


@pytest.mark.parametrize(
    "url", ["/api/v1/fleet/spaces/alice/nothing/placement", "/api/v1/fleet/spaces/a/%00/placement"]
)
def test_a_space_that_is_not_there_is_404(staff: Client, url: str) -> None:
    assert (staff.get(url).status_code, put(staff, url, placement="cpu").status_code) == (404, 404)


@pytest.mark.parametrize("url", [URL, QUEUE])
def test_nobody_else_gets_anything(url: str, enroll: Any) -> None:
    owner = Client()
    owner.force_login(User.objects.create_user("alice"))
    worker: WireWorker = enroll("gpu2")

    assert Client().get(url).status_code == 401
    assert owner.get(url).status_code == 403
    machine = Client(headers={"Authorization": f"Bearer {worker.credential}"})
    assert machine.get(url).status_code == 401
    assert put(owner, placement="cpu").status_code == 403
    assert put(machine, placement="cpu").status_code == 401
    assert Space.objects.get(name="app").placement == "automatic"


def test_setting_needs_the_token_against_forged_requests(world: Space) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_user("otto", is_staff=True))

    assert put(client, placement="cpu").status_code == 403
    assert Space.objects.get().placement == "automatic"


# --- the queue ------------------------------------------------------------------------------------------------------


def test_the_queue_is_the_line_with_its_reasons(staff: Client, world: Space) -> None:
    first = JobFactory.create(requirement=RequirementFactory.create(kind="gpu", gpu_count=2, exclusive=True))
    second = runs.submit(world, requirement=runs.GPU)

    answer = staff.get(QUEUE).json()

    assert (answer["length"], answer["cut"]) == (2, False)
    assert [(entry["place"], entry["job"]) for entry in answer["line"]] == [(1, str(first.pk)), (2, str(second.pk))]
    assert [entry["code"] for entry in answer["line"]] == ["no_compatible_worker", "about_to_start"]
    assert answer["line"][0]["workers"][0]["worker"] == "gpu1"
    assert answer["line"][1]["requirement"] == {
        "kind": "gpu",
        "gpu_count": 1,
        "vram_mib": None,
        "exclusive": True,
        "features": [],
        "worker": None,
    }


def test_it_is_capped_and_says_so(staff: Client) -> None:
    JobFactory.create_batch(3)

    answer = staff.get(QUEUE, {"limit": "2"}).json()

    assert (len(answer["line"]), answer["length"], answer["cut"]) == (2, 3, True)


@pytest.mark.parametrize("limit", ["0", "101", "-1", "x", "", "٣"])
def test_an_impossible_limit_is_refused(staff: Client, limit: str) -> None:
    assert staff.get(QUEUE, {"limit": limit}).status_code == 422
