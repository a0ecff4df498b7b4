"""What is said when there is nothing to proxy, and that it is true."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from pytest_django import Settings

from gpu_worker.gateway import Gateway
from jobs import notices
from jobs.models import Job, Lease
from tests.factories import JobFactory, UptimeFactory, WorkerFactory, ago
from tests.runtime_proxy.conftest import PORTAL
from tests.runtime_proxy.data_plane import DataPlane, refused_handshake, until
from tests.runtime_proxy.upstreams import Upstream
from tests.spaces.repositories import make_space
from workers.models import Worker

RunSpace = Callable[..., Job]


def said(data_plane: DataPlane) -> tuple[int, dict[str, object]]:
    answer = data_plane.get("/run/alice/app/")
    return answer.status, json.loads(answer.body)


def test_a_space_that_never_ran_says_how_it_starts(data_plane: DataPlane, run_space: RunSpace):
    make_space("alice/app")

    status, content = said(data_plane)
    page = data_plane.navigate("/run/alice/app/")

    assert (status, content["code"], content["state"]) == (503, "space_ondemand", "ondemand")
    assert page.status == 503
    assert f'href="{PORTAL}/spaces/alice/app/"'.encode() in page.body
    assert page.one("refresh") is None


@pytest.mark.parametrize("state", ["leased", "building", "starting", "stopping"])
def test_a_space_on_its_way_looks_again_by_itself(data_plane: DataPlane, run_space: RunSpace, state: str):
    run_space(state=state)

    status, content = said(data_plane)
    page = data_plane.navigate("/run/alice/app/")

    assert (status, content["state"], content["worker"]) == (503, state, "gpu1")
    assert page.one("refresh") == page.one("retry-after") == "3"
    assert f"badge s-{state}".encode() in page.body
    assert b"gpu1" in page.body


def test_a_queued_space_says_its_place_and_why(data_plane: DataPlane, run_space: RunSpace):
    UptimeFactory.create()
    JobFactory.create()
    JobFactory.create(space=make_space("alice/app"))

    status, content = said(data_plane)

    assert (status, content["state"], content["place"]) == (503, "queued", 2)
    assert content["detail"] and content["reason"]


@pytest.mark.parametrize("state", ["completed", "cancelled"])
def test_a_stopped_space_can_be_started_from_its_page(data_plane: DataPlane, run_space: RunSpace, state: str):
    JobFactory.create(space=make_space("alice/app"), state=state, finished_at=timezone.now())

    status, content = said(data_plane)
    page = data_plane.navigate("/run/alice/app/")

    assert (status, content["state"]) == (503, state)
    assert b'class="btn main"' in page.body
    assert (page.one("refresh"), page.one("retry-after")) == (None, "60")


class TestWhoMayAct:
    """The page names an act only to who may do it; everybody gets the way to the Space's own page."""

    START, RESTART, OPEN = b"Start it on the Space", b"Restart it on the Space", b"Open the Space"

    def page(self, data_plane: DataPlane, signed_in: Callable[[User], str], name: str) -> bytes:
        cookie = signed_in(User.objects.create_user(name))
        return data_plane.navigate("/run/alice/app/", Cookie=cookie).body

    def test_the_owner_of_an_unavailable_space_may_restart_it(
        self, data_plane: DataPlane, run_space: RunSpace, signed_in: Callable[[User], str]
    ):
        run_space(state="unavailable")

        owners = self.page(data_plane, signed_in, "alice")
        strangers = self.page(data_plane, signed_in, "carol")

        assert self.RESTART in owners and b'class="btn main"' in owners
        assert self.RESTART not in strangers and self.OPEN in strangers

    def test_only_who_may_start_it_is_told_to(
        self, data_plane: DataPlane, run_space: RunSpace, signed_in: Callable[[User], str]
    ):
        JobFactory.create(space=make_space("alice/app"), state="completed", finished_at=timezone.now())

        assert self.START in self.page(data_plane, signed_in, "alice")
        assert self.START not in self.page(data_plane, signed_in, "carol")
        assert self.START not in data_plane.navigate("/run/alice/app/").body

    def test_an_address_that_waits_for_approval_is_not_restarted(
        self, data_plane: DataPlane, run_space: RunSpace, signed_in: Callable[[User], str]
    ):
        run_space(worker=WorkerFactory.create(name="gpu1", gateway_url=""))

        assert self.RESTART not in self.page(data_plane, signed_in, "alice")


def test_a_failed_space_says_why(data_plane: DataPlane, run_space: RunSpace):
    JobFactory.create(space=make_space("alice/app"), state="failed", reason_code="made_up", reason="It said <b>no</b>.")

    _, content = said(data_plane)
    page = data_plane.navigate("/run/alice/app/")

    assert content["detail"] == "It said <b>no</b>."
    assert b"It said &lt;b&gt;no&lt;/b&gt;." in page.body


def test_a_silent_worker_makes_its_space_unavailable_before_anybody_noticed(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream
):
    silent = WorkerFactory.create(name="gpu1", last_seen_at=ago(3600), expected_online="Mon–Fri 9–18")
    job = run_space(worker=silent)

    status, content = said(data_plane)
    page = data_plane.navigate("/run/alice/app/")

    assert (status, content["state"]) == (503, "unavailable")
    assert "gpu1 has not been heard from since" in str(content["detail"])
    assert "Mon–Fri 9–18".encode() in page.body
    assert upstream.seen == []
    assert Job.objects.get(pk=job.pk).state == "running"


def test_a_remembered_route_does_not_outlive_the_workers_silence(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, settings: Settings
):
    settings.OPENFACE_GPU_WORKER_STALE_SECONDS = 1.0
    run_space()
    assert data_plane.get("/run/alice/app/").status == 200

    until(lambda: data_plane.get("/run/alice/app/").status == 503)
    assert said(data_plane)[1]["state"] == "unavailable"

    Worker.objects.update(last_seen_at=timezone.now())
    settings.OPENFACE_GPU_WORKER_STALE_SECONDS = 60.0
    until(lambda: data_plane.get("/run/alice/app/").status == 200)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda: Lease.objects.update(released_at=timezone.now()), id="lease released"),
        pytest.param(lambda: Worker.objects.update(revoked_at=timezone.now()), id="worker revoked"),
        pytest.param(lambda: Worker.objects.update(gateway_url=""), id="gateway not approved"),
        pytest.param(lambda: Lease.objects.update(key_id="gone"), id="lease key gone"),
        pytest.param(lambda: Job.objects.update(state="unavailable"), id="said to be unavailable"),
    ],
)
def test_nothing_is_forwarded_without_a_right_to_run(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, change: Callable[[], object]
):
    run_space()
    change()

    status, content = said(data_plane)

    assert (status, content["state"]) == (503, "unavailable")
    assert upstream.seen == []


def test_a_notice_makes_a_change_visible_at_once(data_plane: DataPlane, run_space: RunSpace):
    job = run_space()
    assert data_plane.get("/run/alice/app/").status == 200

    Job.objects.update(state="stopping")
    notices.publish("job", job=job.pk, space=job.space_id)

    until(lambda: data_plane.get("/run/alice/app/").status == 503)


def test_a_revoked_worker_is_left_at_once(data_plane: DataPlane, run_space: RunSpace):
    job = run_space()
    assert data_plane.get("/run/alice/app/").status == 200

    Worker.objects.update(revoked_at=timezone.now())
    notices.publish("standing", worker=job.worker_id)

    until(lambda: data_plane.get("/run/alice/app/").status == 503)


def test_a_gateway_that_refuses_is_named(data_plane: DataPlane, run_space: RunSpace):
    run_space(worker=WorkerFactory.create(name="gpu1", gateway_url="http://127.0.0.1:1"))

    answer = data_plane.get("/run/alice/app/")
    page = data_plane.navigate("/run/alice/app/")

    assert (answer.status, page.status) == (502, 502)
    assert json.loads(answer.body)["code"] == "gateway_refused"
    assert b"The app runs on gpu1, but its gateway refuses the connection." in page.body


def test_an_app_that_left_its_port_is_named(data_plane: DataPlane, run_space: RunSpace):
    run_space(port=1)

    answer = data_plane.get("/run/alice/app/")

    assert (answer.status, json.loads(answer.body)["code"]) == (502, "app_unreachable")
    assert refused_handshake(data_plane, "/run/alice/app/") == 502


def test_a_gateway_without_the_lease_is_no_404_of_the_app(data_plane: DataPlane, run_space: RunSpace, gateway: Gateway):
    gateway.close(str(run_space().leases.get().pk))

    answer = data_plane.get("/run/alice/app/")

    assert (answer.status, json.loads(answer.body)["code"]) == (502, "gateway_closed")
    assert refused_handshake(data_plane, "/run/alice/app/") == 502


def test_a_batch_job_has_no_page(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space(mode="batch")

    assert said(data_plane)[1]["code"] == "space_running"
    assert upstream.seen == []


def test_while_a_restart_waits_the_old_run_still_serves(data_plane: DataPlane, run_space: RunSpace):
    old = run_space()
    JobFactory.create(space=old.space, replaces=old, blocked_by=old)

    assert data_plane.get("/run/alice/app/").status == 200


def test_pages_speak_the_readers_language_and_run_no_script(data_plane: DataPlane, run_space: RunSpace):
    run_space(state="starting")

    page = data_plane.navigate("/run/alice/app/", Accept_Language="ja, en;q=0.5")
    chosen = data_plane.navigate("/run/alice/app/", Accept_Language="ja", Cookie="openface_language=en")

    assert page.one("content-language") == "ja"
    assert chosen.one("content-language") == "en"
    assert "default-src 'none'" in str(page.one("content-security-policy"))
    assert f"frame-ancestors 'self' {PORTAL}" in str(page.one("content-security-policy"))
    assert b"<script" not in page.body and b"style=" not in page.body
    sheet = page.body.split(b'rel="stylesheet" href="')[1].split(b'"')[0].decode()
    assert data_plane.get(sheet).one("content-type") == "text/css; charset=utf-8"


def test_the_prefix_without_a_slash_leads_to_the_one_with(data_plane: DataPlane, run_space: RunSpace):
    run_space()

    answer = data_plane.get("/run/alice/app?a=b")

    assert (answer.status, answer.one("location")) == (308, "/run/alice/app/?a=b")


def test_names_lead_to_their_canonical_case(data_plane: DataPlane, run_space: RunSpace):
    run_space("alice/App")

    answer = data_plane.get("/run/ALICE/app/x%2Fy//?q", method="POST", body=b"x")

    assert (answer.status, answer.one("location")) == (308, "/run/alice/App/x%2Fy//?q")


def test_the_process_says_that_it_lives(data_plane: DataPlane):
    assert data_plane.get("/healthz").body == b"ok\n"
