"""The queue page shows operators the line, the reasons and who runs what, and nobody else anything."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from jobs.scheduling import RequirementSpec
from tests.factories import GpuWorkerFactory, JobFactory, RequirementFactory, SpaceFactory, UptimeFactory
from tests.spaces.pages import runs
from tests.spaces.repositories import make_space
from workers.models import Worker

pytestmark = pytest.mark.django_db

LARGE = RequirementSpec(kind="gpu", gpu_count=1, vram_mib=19_073)


@pytest.fixture
def town(db: None) -> None:
    UptimeFactory.create()
    GpuWorkerFactory.create(name="atlas")
    runs.submit(make_space("dora/holder", topics=("space", "gpu"), visibility="private"), requirement=LARGE)
    runs.claim(Worker.objects.get(name="atlas")).to_running()
    runs.submit(make_space("alice/first", topics=("space", "gpu")), requirement=LARGE)
    runs.submit(make_space("dora/second", topics=("space", "gpu"), visibility="private"), requirement=LARGE)
    JobFactory.create(space=SpaceFactory.create(name="last"), attempts=3)


def test_the_line_its_reasons_and_who_runs_what(town: None, otto: Client) -> None:
    answer = otto.get("/queue/")

    assert [(line.place, str(line.job.space)) for line in answer.context["lines"]] == [
        (1, "alice/first"),
        (2, "dora/second"),
    ]
    assert [(line.place, str(line.job.space)) for line in answer.context["beside"]] == [(None, "owner/last")]
    page = answer.content.decode()
    assert "reserved for dora/holder." in page
    assert "no GPU has 20 GB free" in page
    assert "its last attempt expired" in page
    assert [(str(one.job.space), one.badge.text) for one in answer.context["taken"]] == [
        ("dora/holder", "GPU · Running")
    ]


def test_jobs_of_the_same_needs_share_their_reasons(town: None, otto: Client) -> None:
    (only,) = otto.get("/queue/").context["classes"]

    assert (only.needs, only.jobs) == ("a GPU with at least 20 GB", 2)


def test_the_bar_the_fleet_page_and_the_queue_count_the_same_line(otto: Client, carol: Client) -> None:
    """Everybody's jobs that a claim may take: a place in the line is a place behind all of them."""
    UptimeFactory.create()
    GpuWorkerFactory.create(scheduling="draining")
    hidden = runs.submit(make_space("dora/hidden", topics=("space", "gpu"), visibility="private"), requirement=LARGE)
    runs.submit(make_space("carol/own", topics=("space", "gpu")), requirement=LARGE)
    JobFactory.create(blocked_by=hidden)
    JobFactory.create(attempts=3)

    pages = [otto.get("/queue/"), otto.get("/fleet/"), carol.get("/"), carol.get("/fleet/")]
    for text in (page.content.decode() for page in pages):
        assert "<b>2</b> in line" in text
    for text in (page.content.decode() for page in (pages[0], pages[3])):
        assert "<dt>In line</dt><dd>2" in text
    assert "2nd in line" in carol.get("/spaces/carol/own/").content.decode()
    assert "dora/hidden" not in pages[2].content.decode() + pages[3].content.decode()


def test_it_can_be_drawn_again_alone(town: None, otto: Client) -> None:
    page = otto.get("/queue/?part=list").content.decode()

    assert page.lstrip().startswith('<div id="queue"')
    assert "alice/first" in page


def test_an_empty_queue_says_so(otto: Client) -> None:
    page = otto.get("/queue/").content.decode()

    assert "Nobody waits for a worker." in page
    assert "No worker has a job." in page


def test_only_operators_see_it(town: None, alice: Client, passer_by: Client) -> None:
    refused = alice.get("/queue/")
    assert refused.status_code == 403
    assert "dora" not in refused.content.decode()
    assert 'href="/queue/"' not in alice.get("/").content.decode()
    assert passer_by.get("/queue/").headers["Location"] == "/login/?next=/queue/"


def test_it_costs_the_same_for_fifty_jobs_and_twenty_workers(otto: Client, django_assert_max_num_queries: Any) -> None:
    UptimeFactory.create()
    for number in range(20):
        GpuWorkerFactory.create(name=f"gpu{number}", gpus=[{"healthy": False}, {"healthy": False}])
    for number in range(50):
        needs = RequirementFactory.create(kind="gpu", gpu_count=1, vram_mib=1_000 * (number % 7 + 1))
        JobFactory.create(requirement=needs)
    otto.get("/queue/")

    with django_assert_max_num_queries(30):
        answer = otto.get("/queue/")

    assert len(answer.context["lines"]) == 50
    assert len(answer.context["classes"]) == 7


def test_of_a_large_fleet_the_nearest_are_drawn_and_the_rest_is_behind_a_click(otto: Client) -> None:
    UptimeFactory.create()
    for number in range(70):
        GpuWorkerFactory.create(name=f"gpu{number:02}", scheduling="draining")
    runs.submit(make_space("alice/first", topics=("space", "gpu")), requirement=runs.GPU)

    for page in (otto.get("/queue/"), otto.get("/spaces/alice/first/"), otto.get("/spaces/alice/first/placement/")):
        text = page.content.decode()
        assert text.count("<p>Draining: takes no new jobs.</p>") == 8 + 1, "eight, and one for all the others"
        assert "<summary>and 62 more</summary>" in text
        assert "gpu07" in text and "gpu08, gpu09" in text and "and 50 more" in text
        assert "<b>62 workers</b>" in text and "<b>gpu08</b>" not in text


def test_the_api_leaves_none_of_them_out(otto: Client) -> None:
    UptimeFactory.create()
    for number in range(70):
        GpuWorkerFactory.create(name=f"gpu{number:02}", scheduling="draining")
    runs.submit(make_space("alice/first", topics=("space", "gpu")), requirement=runs.GPU)

    assert len(otto.get("/spaces/alice/first/status.json").json()["waiting"]["workers"]) == 70
    (first,) = otto.get("/api/v1/fleet/queue").json()["line"]
    assert len(first["workers"]) == 70
