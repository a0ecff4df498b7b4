"""Before a placement is set, it is said what the Space would need, who could take it, and what becomes of a run."""

from __future__ import annotations

import uuid

import pytest
from django.contrib.auth.models import User

from jobs import lifecycle
from spaces import launch, placement
from spaces.models import Space
from spaces.placement_preview import Preview, preview
from tests.factories import GpuWorkerFactory, UptimeFactory, WorkerFactory, ago
from tests.spaces.pages import runs
from tests.spaces.repositories import make_space
from workers import standing
from workers.models import Worker

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def fleet(db: None) -> None:
    UptimeFactory.create()
    WorkerFactory.create(name="cpu1")
    GpuWorkerFactory.create(name="gpu1")
    GpuWorkerFactory.create(name="gpu2", last_seen_at=ago(3600))


@pytest.fixture
def space() -> Space:
    return make_space("alice/app", topics=("space", "gpu", "vram-20gb"))


def judged(space: Space, value: str, worker: str | None = None) -> Preview:
    return preview(Space.objects.get(pk=space.pk), placement.wish(value, worker))


@pytest.mark.parametrize(
    ("value", "worker", "needs", "outlook", "ready"),
    [
        ("automatic", None, "a GPU with at least 20 GB", "Could start now on gpu1.", ["gpu1"]),
        ("gpu", None, "a GPU with at least 20 GB", "Could start now on gpu1.", ["gpu1"]),
        ("cpu", None, "a CPU worker", "Could start now on cpu1.", ["cpu1"]),
        ("worker", "gpu1", "a GPU with at least 20 GB, on gpu1 only", "Could start now on gpu1.", ["gpu1"]),
        ("worker", "gpu2", "a GPU with at least 20 GB, on gpu2 only", "It would wait: no worker can take it now.", []),
        (
            "worker",
            "cpu1",
            "a GPU with at least 20 GB, on cpu1 only",
            "It would wait for ever: no worker can take it as things are.",
            [],
        ),
    ],
)
def test_needs_and_outlook(
    space: Space, value: str, worker: str | None, needs: str, outlook: str, ready: list[str]
) -> None:
    seen = judged(space, value, worker)

    assert (seen.needs, seen.outlook, seen.ready) == (needs, outlook, ready)


def test_the_named_worker_comes_first_and_the_others_are_one_row(space: Space) -> None:
    seen = judged(space, "worker", "gpu2")

    assert [(row.worker, row.code) for row in seen.why] == [("gpu2", "worker_offline")]
    assert [(row.worker, row.code) for row in seen.never] == [("Every other worker", "other_worker_named")]


def test_a_placement_on_a_worker_that_was_revoked_since_says_so(space: Space, operator: User) -> None:
    placement.place(space.pk, placement.wish("worker", "gpu1"), actor=operator)
    standing.revoke(Worker.objects.get(name="gpu1").pk, actor=None)

    seen = preview(Space.objects.get(), placement.Wish.of(Space.objects.get()))

    assert seen.waiting.code == "named_worker_revoked"
    assert (seen.never[0].worker, seen.never[0].sentence) == ("gpu1", "Revoked.")


def test_effects_on_the_runs_there_are(space: Space, owner: User) -> None:
    assert judged(space, "cpu").effects == ["It counts from the next start on."]
    assert judged(space, "automatic").effects == ["This is how it is placed now."]

    launch.start(space, user=owner)
    assert judged(space, "cpu").effects == ["The run in line gets the new needs at once and keeps its place."]
    assert judged(space, "gpu").effects == ["The run in line needs just that already."]

    worker = Worker.objects.get(name="gpu1")
    lifecycle.claim_next(worker.pk, session=1, free_gpu=1, free_cpu=0, key=str(uuid.uuid4()))
    assert judged(space, "cpu").effects == ["What runs now goes on where it is, until somebody restarts it."]
    assert judged(space, "gpu").effects == ["The run there is was started with just that."]


STAYS = "Files it kept in /data stay on gpu1; they come back when it runs there again."


@pytest.mark.parametrize(
    ("value", "worker", "leaves"),
    [
        ("automatic", None, False),
        ("gpu", None, False),
        ("worker", "gpu1", False),
        ("cpu", None, True),
        ("worker", "gpu2", True),
        ("worker", "cpu1", True),
    ],
)
def test_what_it_kept_on_a_machine_that_it_leaves_stays_there(
    space: Space, value: str, worker: str | None, leaves: bool
) -> None:
    assert STAYS not in judged(space, value, worker).effects, "it has never run"
    runs.submit(space, requirement=runs.GPU)
    attempt = runs.claim(Worker.objects.get(name="gpu1"))
    assert STAYS not in judged(space, value, worker).effects, "its app has not been there yet"

    attempt.to_running().report("exited", code=1, oom_killed=False)

    assert (STAYS in judged(space, value, worker).effects) is leaves


def test_what_it_kept_on_a_machine_that_was_revoked_stays_there(space: Space) -> None:
    runs.submit(space, requirement=runs.GPU)
    runs.claim(Worker.objects.get(name="gpu1")).to_running()

    standing.revoke(Worker.objects.get(name="gpu1").pk, actor=None)

    assert STAYS in judged(space, "gpu").effects


def test_it_costs_the_same_for_a_large_fleet(space: Space, django_assert_max_num_queries) -> None:
    for number in range(20):
        GpuWorkerFactory.create(name=f"more{number}", gpus=[{}, {}])

    with django_assert_max_num_queries(12):
        seen = judged(space, "automatic")

    assert len(seen.ready) == 21
    assert seen.outlook.endswith(" + 16.")
