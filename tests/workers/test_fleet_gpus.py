"""A GPU on the fleet page: one bar that says who holds what, the same in words, and what is out of the ordinary."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest
from django.test import Client

from jobs.models import Lease, Reservation
from spaces.bars import segments
from spaces.models import LocalRepository, Visibility
from tests.factories import GpuWorkerFactory, JobFactory, RequirementFactory, SpaceFactory, UserFactory, ago
from workers import overview
from workers.models import Gpu
from workers.offers import offers_for

pytestmark = pytest.mark.django_db

TOTAL = 24_576  # 24.0 GB


def card(**facts: Any) -> Gpu:
    """The one GPU of a worker of its own."""
    values = {"total_vram_mib": TOTAL, "free_vram_mib": TOTAL, **facts}
    return Gpu.objects.get(worker=GpuWorkerFactory.create(name="gpu1", gpus=[values]))


def hold(gpu: Gpu, mib: int, name: str = "app", *, used: int | None = None, exclusive: bool = False) -> Lease:
    """A job that holds so much of a card, and uses so much."""
    needs = RequirementFactory.create(kind="gpu", gpu_count=1, vram_mib=None if exclusive else mib)
    repository = LocalRepository.objects.create(
        owner="alice", name=name, visibility=Visibility.PRIVATE, topics=["space", "gpu"]
    )
    space = SpaceFactory.create(
        repository_id=str(repository.pk), owner="alice", name=name, visibility=Visibility.PRIVATE
    )
    job = JobFactory.create(requirement=needs, space=space)
    lease = Lease.objects.create(
        job=job, worker=gpu.worker, attempt=1, session=1, idempotency_key=uuid.uuid4().hex, expires_at=ago(-90)
    )
    Reservation.objects.create(lease=lease, gpu=gpu, mib=mib, exclusive=exclusive)
    if used is not None:
        gpu.ours = [*gpu.ours, {"lease": str(lease.pk), "mib": used}]
        gpu.free_vram_mib = max(0, (gpu.free_vram_mib or 0) - used)
        gpu.save()
    return lease


def bar(gpu: Gpu, *, live: bool = True) -> list[tuple[str, float, float]]:
    (offer,) = offers_for([gpu.worker_id])
    return [(part.look, part.start, part.width) for part in segments(offer.gpus[0], live=live)]


def fleet(*, staff: bool = True, username: str = "", language: str = "en") -> str:
    client = Client()
    client.force_login(UserFactory.create(is_staff=staff, **({"username": username} if username else {})))
    answer = client.get("/fleet/", headers={"Accept-Language": language})
    assert answer.status_code == 200
    return answer.content.decode()


def spoken(page: str) -> str:
    """What a screen reader says of the (first) bar."""
    found = re.search(r'role="img" aria-label="([^"]*)"', page)
    assert found is not None
    return found[1]


class TestTheBar:
    def test_shows_who_reserved_what_and_how_much_of_it_is_used(self) -> None:
        gpu = card()
        hold(gpu, 6_144, used=3_072)
        hold(gpu, 12_288, "lab")

        assert bar(gpu) == [
            ("a-t", 0.0, 25.0),
            ("a-m", 0.0, 12.5),
            ("b-t", 25.0, 50.0),
            ("keep", 75.0, 2.08),
        ]

    def test_shows_what_others_use_after_ours(self) -> None:
        gpu = card(foreign=[{"pid": 4711, "name": "python", "mib": 6_144}], free_vram_mib=TOTAL - 6_144)
        hold(gpu, 6_144)

        assert bar(gpu) == [("a-t", 0.0, 25.0), ("foreign", 25.0, 25.0), ("keep", 50.0, 2.08)]

    def test_shows_what_is_used_beyond_a_reservation(self) -> None:
        gpu = card()
        hold(gpu, 6_144, used=12_288)

        assert bar(gpu)[:3] == [("a-t", 0.0, 25.0), ("a-m", 0.0, 25.0), ("over", 25.0, 25.0)]

    def test_a_whole_gpu_is_all_of_it_less_what_others_leave(self) -> None:
        gpu = card(foreign=[{"pid": 1, "name": "Xorg", "mib": 1_229}], free_vram_mib=TOTAL - 1_229)
        hold(gpu, TOTAL, used=2_458, exclusive=True)

        assert bar(gpu) == [("a-t", 0.0, 95.0), ("a-m", 0.0, 10.0), ("foreign", 95.0, 5.0)]

    def test_never_ends_beyond_the_card(self) -> None:
        gpu = card(foreign=[{"pid": 1, "name": "x", "mib": 20_000}], free_vram_mib=0)
        hold(gpu, 20_000, used=22_000)

        assert max(start + width for _, start, width in bar(gpu)) <= 100

    def test_of_a_worker_that_is_not_heard_from_shows_only_what_is_reserved(self) -> None:
        gpu = card(foreign=[{"pid": 1, "name": "x", "mib": 9_000}], free_vram_mib=0)
        hold(gpu, 6_144, used=3_000)

        assert [look for look, _, _ in bar(gpu, live=False)] == ["a-t", "keep"]

    @pytest.mark.parametrize("facts", [{"mig": True}, {"healthy": False}, {"good_reports": 0}])
    def test_a_gpu_that_is_not_in_order_has_nothing_to_keep_back(self, facts: dict[str, Any]) -> None:
        assert bar(card(**facts)) == []

    def test_what_a_driver_keeps_for_itself_is_nobodys(self) -> None:
        assert bar(card(free_vram_mib=TOTAL - 450)) == [("keep", 0.0, 2.08)]


class TestItsWords:
    def test_say_the_same_as_the_bar(self) -> None:
        gpu = card(foreign=[{"pid": 4711, "name": "python", "mib": 2_048}], free_vram_mib=TOTAL - 2_048)
        hold(gpu, 6_144, used=3_072)
        hold(gpu, 8_192, "lab")

        assert spoken(fleet()) == (
            "RTX 4090 24 GB: alice/app 6.0 GB, uses 3.0 GB, alice/lab 8.0 GB, "
            "not ours 2.0 GB: python, pid 4711, 7.5 GB free"
        )

    def test_free_is_what_a_job_could_be_given(self) -> None:
        card()

        assert spoken(fleet()) == "RTX 4090 24 GB: 23.5 GB free"

    def test_who_exceeds_his_reservation_is_said_to(self) -> None:
        hold(card(), 6_144, used=9_318)

        page = fleet()

        assert "6.0 GB, uses 9.1 GB: more than it reserved" in page
        assert '<li class="over">' in page

    def test_memory_that_no_process_owns_up_to_is_named_as_that(self) -> None:
        card(free_vram_mib=TOTAL - 4_096)

        assert "4.0 GB, by no process that is listed" in fleet()

    def test_what_is_not_ours_is_named_as_far_as_it_is_known(self) -> None:
        unnamed = [{"pid": None, "name": "blender", "mib": 2_048}]
        stray = [{"lease": str(uuid.uuid4()), "mib": 1_024}]
        card(foreign=unnamed, ours=stray, free_vram_mib=TOTAL - 3_072)

        assert "not ours 3.0 GB: blender, a container on hold" in spoken(fleet())

    def test_names_are_said_to_their_readers_only(self) -> None:
        hold(card(), 6_144, "secret")

        assert "alice/secret" in spoken(fleet())
        assert "alice/secret" in spoken(fleet(staff=False, username="alice"))
        stranger = fleet(staff=False)
        assert "secret" not in stranger
        assert "a Space you cannot see 6.0 GB" in spoken(stranger)

    def test_are_japanese_for_japanese_readers(self) -> None:
        hold(card(), 6_144, used=9_318)

        page = fleet(language="ja")

        assert "6.0 GB、使用 9.1 GB（予約を超えています）" in page


class TestFlags:
    @pytest.mark.parametrize(
        ("facts", "flag"),
        [
            ({"mig": True}, "Split into MIG instances: each of them is a GPU of its own here."),
            (
                {"healthy": False, "error": "GPU is lost", "good_reports": 0},
                'Does not answer. (<span lang="en">GPU is lost</span>)',
            ),
            ({"good_reports": 1}, "Failed a moment ago; used again after 2 more good reports."),
            (
                {"doubts": [{"code": "free_impossible", "mib": 30_720}], "free_vram_mib": None},
                "Impossible reading, not used: 30.0 GB free of 24.0 GB.",
            ),
            (
                {"doubts": [{"code": "free_impossible", "mib": None}], "free_vram_mib": None},
                "Impossible reading, not used: how much of it is free.",
            ),
            (
                {"doubts": [{"code": "use_above_size", "mib": 30_720}]},
                "Impossible reading, not used: its processes use 30.0 GB of 24.0 GB.",
            ),
            (
                {"doubts": [{"code": "use_impossible", "mib": None}]},
                "Impossible reading, not used: what one of its processes uses.",
            ),
            (
                {"doubts": [{"code": "size_missing", "mib": 0}]},
                "Its driver does not tell its size now: the largest that it ever told counts, 24.0 GB.",
            ),
            (
                {"doubts": [{"code": "size_shrank", "mib": 12_288}]},
                "Its driver tells a size of 12.0 GB: the largest that it ever told counts, 24.0 GB.",
            ),
            (
                {"doubts": [{"code": "size_impossible", "mib": None}]},
                "Its driver does not tell its size now: the largest that it ever told counts, 24.0 GB.",
            ),
            (
                {"doubts": [{"code": "size_missing", "mib": None}], "total_vram_mib": 0, "free_vram_mib": None},
                "Its driver does not tell how much memory it has: only jobs that name no size are placed on it.",
            ),
            (
                {"foreign": [{"pid": 1, "name": "x", "mib": None}]},
                "What each job uses cannot be measured there: it is given as a whole only.",
            ),
            (
                {"free_vram_mib": None},
                "How much of it is free is not known: it is given as a whole only.",
            ),
            ({"simulated": True}, "Simulated: never counted with real ones."),
        ],
    )
    def test_say_what_is_out_of_the_ordinary(self, facts: dict[str, Any], flag: str) -> None:
        card(**facts)

        assert f"<li>{flag}</li>" in fleet()

    def test_an_ordinary_gpu_has_none(self) -> None:
        card()

        assert 'class="flags"' not in fleet()

    def test_a_gpu_that_vanished_stays_while_something_is_reserved_on_it(self) -> None:
        gpu = card(present=False, free_vram_mib=None)
        assert '<div class="gpu">' not in fleet()

        hold(gpu, 6_144)

        page = fleet()
        assert "The driver does not list it any more." in page
        assert "6.0 GB, stays reserved until its worker says that nothing is left" in page

    def test_a_gpu_that_two_workers_report_is_flagged_at_both(self) -> None:
        GpuWorkerFactory.create(name="gpu1", gpus=[{"uuid": "GPU-x", "reported_at": ago(9)}])
        GpuWorkerFactory.create(name="gpu2", gpus=[{"uuid": "GPU-x", "reported_at": ago(1)}])

        page = fleet()

        assert "gpu2 has reported the same GPU since." in page
        assert "gpu1 reported the same GPU too." in page

    def test_a_lost_gpu_shows_by_the_drivers_own_count(self) -> None:
        GpuWorkerFactory.create(name="gpu1", driver_gpu_count=2)

        assert "The driver counts 2 GPUs, fewer are listed." in fleet()

    def test_a_gpu_that_cannot_be_opened_is_told_with_the_reason(self) -> None:
        reason = {"gpu_unopened_reason": "The GPU lacks power: no cable."}
        GpuWorkerFactory.create(name="gpu1", driver_gpu_count=2, capabilities=reason)

        page = fleet()

        said = '<span lang="en">The GPU lacks power: no cable.</span>'
        assert f"The driver counts 2 GPUs and cannot open all of them: {said}" in page
        assert "fewer are listed" not in page

    def test_what_a_driver_said_is_the_operators_business(self) -> None:
        card(healthy=False, error="NVML: rm version mismatch at 0000:65:00.0")

        assert "0000:65:00.0" in fleet()
        assert "0000:65:00.0" not in fleet(staff=False)


def test_programs_of_operators_read_all_of_it() -> None:
    gpu = card(foreign=[{"pid": 4711, "name": "python", "mib": 2_048}], free_vram_mib=TOTAL - 2_048)
    lease = hold(gpu, 6_144, used=3_072)

    seen = overview.fleet()
    (told,) = overview.as_json(seen.lines[0], now=seen.now)["gpus"]

    reserved = {"lease": str(lease.pk), "space": "alice/app", "mib": 6_144, "exclusive": False, "used_mib": 3_072}
    assert told["reservations"] == [reserved]
    assert (told["reserved_mib"], told["foreign_mib"]) == (6_144, 2_048)
    assert told["available_mib"] == TOTAL - 2_048 - 6_144 - 512
