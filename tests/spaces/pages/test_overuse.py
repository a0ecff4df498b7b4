"""A job that uses more VRAM than it reserved stands in the history, with those at risk whom the reader may know."""

from __future__ import annotations

import pytest
from django.test import Client

from jobs.lifecycle import warn_of_overuse
from jobs.models import JobEvent, Reservation
from jobs.scheduling import RequirementSpec
from spaces.models import Visibility
from tests.factories import GpuWorkerFactory, UptimeFactory
from tests.spaces.pages import runs
from tests.spaces.repositories import make_space
from workers.models import Worker

pytestmark = pytest.mark.django_db

SHARED = RequirementSpec(kind="gpu", gpu_count=1, vram_mib=6_144)
ACTIVITY = "/spaces/alice/greedy/activity/"


@pytest.fixture
def shared_gpu() -> Worker:
    """A worker on whose one GPU alice/greedy runs beside two private Spaces, and exceeds its reservation."""
    UptimeFactory()
    worker = GpuWorkerFactory.create(name="atlas", gpus=[{}])
    for name, visibility in (
        ("alice/greedy", Visibility.PUBLIC),
        ("alice/mine", Visibility.PRIVATE),
        ("bob/secret", Visibility.PRIVATE),
    ):
        runs.submit(make_space(name, topics=("space", "gpu"), visibility=visibility), requirement=SHARED)
        runs.claim(worker).to_running()
    warn_of_overuse(Reservation.objects.earliest("pk").pk, used_mib=9_318)
    return worker


def reasons(client: Client) -> str:
    return "; ".join(move.reason for run in client.get(ACTIVITY).context["runs"] for move in run.moves if move.warning)


def test_an_operator_reads_all_names(shared_gpu: Worker, otto: Client) -> None:
    assert reasons(otto) == ("It uses 9.1 GB; 6.0 GB are reserved on GPU 0 RTX 4090. At risk: alice/mine, bob/secret.")


def test_an_owner_reads_the_names_he_may_know(shared_gpu: Worker, alice: Client) -> None:
    assert reasons(alice).endswith("At risk: alice/mine, a Space you cannot see.")


def test_a_stranger_reads_that_there_are_others(shared_gpu: Worker, carol: Client) -> None:
    page = carol.get(ACTIVITY).content.decode()

    assert "At risk: 2 Spaces you cannot see." in page
    assert "secret" not in page


def test_the_state_stays_as_it_was(shared_gpu: Worker, alice: Client) -> None:
    (run, *_) = alice.get(ACTIVITY).context["runs"]

    assert [move.state for move in run.moves] == ["running", "running", "starting", "building", "leased", "queued"]
    assert (run.moves[0].warning, run.job.state) == (True, "running")


def test_a_gpu_without_neighbours_puts_nobody_at_risk(shared_gpu: Worker, alice: Client) -> None:
    JobEvent.objects.filter(event="vram_exceeded").update(
        facts={
            "gpu": {"uuid": "GPU-a", "index": 0, "model": "NVIDIA GeForce RTX 4090"},
            "reserved_mib": 6_144,
            "used_mib": 9_318,
            "at_risk": [],
        }
    )

    assert reasons(alice) == "It uses 9.1 GB; 6.0 GB are reserved on GPU 0 RTX 4090. Nobody else is on that GPU."


def test_it_is_japanese_for_japanese_readers(shared_gpu: Worker, alice: Client) -> None:
    page = alice.get(ACTIVITY, headers={"Accept-Language": "ja"}).content.decode()

    assert "予約した 6.0 GB に対して 9.1 GB を使っています" in page
