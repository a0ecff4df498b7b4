"""A worker's credential opens that worker's endpoints, and nothing else."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone

from jobs.models import AuditEvent, Job, Lease
from tests.factories import JobFactory, UserFactory
from tests.workers.conftest import WireWorker
from workers import credentials
from workers.models import Worker

pytestmark = pytest.mark.django_db

Enroll = Any


def bodies(worker: WireWorker, lease: str) -> dict[str, Any]:
    """A valid body for each of a worker's endpoints, in the caller's own session."""
    return {
        "heartbeat": {"session": worker.session, "beat": 99, "accepting": False, "gpus": [], "holds": []},
        "jobs/claim": {"session": worker.session, "free_slots": {"gpu": 1, "cpu": 1}, "gpus": []},
        "jobs/{job}/events": {
            "session": worker.session,
            "lease": lease,
            "events": [{"seq": 1, "kind": "failed", "reason": "spite", "detail": "It is mine."}],
            "logs": [{"stream": "run", "offset": 0, "text": "forged"}],
        },
        "jobs/{job}/lease": {"session": worker.session, "lease": lease},
    }


@pytest.fixture
def two(enroll: Enroll) -> tuple[WireWorker, WireWorker, Any]:
    """A victim with a claimed job, and another worker."""
    victim = enroll("victim", local=True, gateway_url="http://127.0.0.1:18787")
    other = enroll("other", local=True, gateway_url="http://127.0.0.1:18788")
    Worker.objects.update(gateway_status=Worker.Gateway.OK)
    JobFactory.create()
    return victim, other, victim.claim().json()


@pytest.mark.parametrize("path", ["heartbeat", "jobs/claim", "jobs/{job}/events", "jobs/{job}/lease"])
def test_no_worker_calls_under_anothers_id(two: tuple[WireWorker, WireWorker, Any], path: str) -> None:
    victim, other, claimed = two
    before = victim.row.last_seen_at

    answer = other.post(
        f"{victim.id}/{path.format(job=claimed['id'])}",
        bodies(other, claimed["lease"])[path],
        **{"Idempotency-Key": "k"},
    )

    assert (answer.status_code, answer.json()["code"]) == (403, "not_your_worker")
    assert victim.row.last_seen_at == before
    assert victim.row.accepting


@pytest.mark.parametrize("path", ["jobs/{job}/events", "jobs/{job}/lease"])
def test_no_worker_touches_anothers_job_under_its_own_id(two: tuple[WireWorker, WireWorker, Any], path: str) -> None:
    _, other, claimed = two
    before = Lease.objects.get()

    answer = other.post(f"{other.id}/{path.format(job=claimed['id'])}", bodies(other, claimed["lease"])[path])

    assert (answer.status_code, answer.json()["code"]) == (409, "lease_stale")
    after = Lease.objects.get()
    assert (after.expires_at, after.accepted_through) == (before.expires_at, 0)
    assert Job.objects.get().state == "leased"


def test_no_worker_learns_anothers_tokens_by_its_key(two: tuple[WireWorker, WireWorker, Any]) -> None:
    _, other, _ = two
    key = Lease.objects.get().idempotency_key

    assert other.claim(key).status_code == 204


def test_no_worker_clears_anothers_lease_by_not_listing_it(two: tuple[WireWorker, WireWorker, Any]) -> None:
    _, other, claimed = two

    other.register(holds=[])
    answer = other.heartbeat(holds=[{"lease": claimed["lease"], "state": "running"}])

    assert [lease["want"] for lease in answer.json()["leases"]] == ["hold"]
    assert "runtime_token" not in str(answer.json()["leases"][0].get("runtime_token") or "")
    assert Lease.objects.get().cleared_at is None


def test_no_worker_revokes_another(two: tuple[WireWorker, WireWorker, Any]) -> None:
    victim, other, _ = two

    answer = other.client.delete(
        f"/api/v1/workers/{victim.id}", headers={"Authorization": f"Bearer {other.credential}"}
    )

    assert (answer.status_code, answer.json()["code"]) == (403, "not_your_worker")
    assert victim.row.revoked_at is None


def test_a_worker_may_leave_and_is_told_why_it_is_refused_then(enroll: Enroll) -> None:
    worker = enroll()
    headers = {"Authorization": f"Bearer {worker.credential}"}

    assert worker.client.delete(f"/api/v1/workers/{worker.id}", headers=headers).status_code == 204

    event = AuditEvent.objects.get(act="worker_revoked")
    assert (event.actor_name, event.reason) == ("anonymous", "the worker left by itself")
    answer = worker.heartbeat()
    credential = credentials.parse(worker.credential)
    assert credential is not None
    assert (answer.status_code, answer.json()["code"]) == (401, "credential_revoked")
    assert answer.json()["proof"] == credentials.revocation_proof(
        credential.worker_id, credentials.digest(credential.secret)
    )


WRONG = {
    "none": "",
    "no scheme": "ofw_" + "0" * 32 + "_" + "a" * 43,
    "unknown worker": "Bearer ofw_" + "0" * 32 + "_" + "a" * 43,
    "short": "Bearer ofw_0_a",
    "a token": "Bearer oft_abc",
    "basic": "Basic bGVhc2U6eA==",
    "rubbish": "Bearer \x00\xff",
    "empty": "Bearer ",
}


@pytest.mark.parametrize("header", WRONG.values(), ids=WRONG)
def test_anything_but_a_valid_credential_is_401_with_a_challenge(enroll: Enroll, header: str) -> None:
    worker = enroll()

    answer = Client().post(
        f"/api/v1/workers/{worker.id}/heartbeat",
        "{}",
        content_type="application/json",
        **({"HTTP_AUTHORIZATION": header} if header else {}),  # type: ignore[arg-type]
    )

    assert (answer.status_code, answer.json()["code"]) == (401, "credential_invalid")
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_the_right_worker_with_a_wrong_secret_is_401(enroll: Enroll) -> None:
    worker = enroll()
    worker.credential = worker.credential[:-43] + "A" * 43

    before = worker.heartbeat()
    Worker.objects.update(revoked_at=timezone.now())
    after = worker.heartbeat()

    # Whether the worker was revoked is told only to who has the secret.
    for answer in (before, after):
        assert (answer.status_code, answer.json()["code"]) == (401, "credential_invalid")


def paths(patterns: Any = None, prefix: str = "") -> Iterator[str]:
    """Every path of the control plane, with plausible values for its parameters."""
    for entry in get_resolver().url_patterns if patterns is None else patterns:
        if isinstance(entry, URLResolver):
            yield from paths(entry.url_patterns, prefix + str(entry.pattern))
        elif isinstance(entry, URLPattern):
            yield "/" + prefix + str(entry.pattern)


def filled(path: str) -> str | None:
    """A concrete path, or None for patterns that are regular expressions."""
    values = {"uuid": str(uuid.uuid4()), "int": "1", "str": "x", "path": "x", "slug": "x"}
    while "<" in path:
        head, _, rest = path.partition("<")
        inner, _, tail = rest.partition(">")
        kind = inner.partition(":")[0] if ":" in inner else "str"
        path = head + values.get(kind, "x") + tail
    if path.startswith("/admin/") and ("/x/" in path or path.endswith("/add/")):
        return None  # each list of the admin stands for the pages below it
    return None if any(sign in path for sign in "^$(?*[\\") else path


def test_a_worker_credential_opens_nothing_else(enroll: Enroll) -> None:
    """Whatever path: with the credential the answer is the stranger's answer."""
    worker = enroll()
    all_paths = {found for path in paths() if (found := filled(path)) and not found.startswith("/api/v1/workers")}
    all_paths |= {"/api/v1/fleet/workers/gpu1/drain", "/api/v1/fleet/workers/gpu1/revoke"}
    assert len(all_paths) > 10

    for path in sorted(all_paths):
        for method in ("get", "post", "delete") if path.startswith("/api/") else ("get", "post"):
            stranger = getattr(Client(), method)(path)
            known = getattr(Client(), method)(path, headers={"Authorization": f"Bearer {worker.credential}"})
            assert known.status_code == stranger.status_code, f"{method} {path}"
    assert worker.row.scheduling == Worker.Scheduling.OPEN
    assert worker.row.revoked_at is None


def test_workers_call_from_allowed_networks_only(enroll: Enroll, settings: Any) -> None:
    worker = enroll()
    settings.OPENFACE_GPU_WORKER_NETWORKS = ["10.1.0.0/16", "fd00::/8"]

    for address, status in (("10.1.2.3", 200), ("::ffff:10.1.2.3", 200), ("fd00::5", 200), ("10.2.0.1", 403)):
        worker.client = Client(REMOTE_ADDR=address)
        answer = worker.heartbeat()
        assert answer.status_code == status, address
    assert answer.json()["code"] == "address_not_allowed"
    refused = Client(REMOTE_ADDR="10.2.0.1").post("/api/v1/workers/enroll", "{}", content_type="application/json")
    assert (refused.status_code, refused.json()["code"]) == (403, "address_not_allowed")


def test_forwarded_addresses_count_only_from_trusted_proxies(enroll: Enroll, settings: Any) -> None:
    worker = enroll()
    settings.OPENFACE_GPU_WORKER_NETWORKS = ["10.1.0.0/16"]
    settings.OPENFACE_TRUSTED_PROXIES = ["192.168.0.2"]
    table = [
        ("192.168.0.2", "10.1.2.3", 200),
        ("192.168.0.2", "8.8.8.8, 10.1.2.3", 200),  # what a client wrote itself stands on the left
        ("192.168.0.2", "10.1.2.3, 8.8.8.8", 403),
        ("192.168.0.9", "10.1.2.3", 403),  # not a proxy of ours
        ("192.168.0.2", "not an address", 403),
    ]

    for peer, forwarded, status in table:
        worker.client = Client(REMOTE_ADDR=peer, HTTP_X_FORWARDED_FOR=forwarded)
        assert worker.heartbeat().status_code == status, (peer, forwarded)


class TestOperators:
    def test_staff_may_drain_and_resume(self, enroll: Enroll) -> None:
        worker = enroll()
        client = Client()
        client.force_login(UserFactory.create(is_staff=True))

        drained = client.post("/api/v1/fleet/workers/GPU1/drain", '{"reason": "fans"}', content_type="application/json")
        assert drained.status_code == 200
        assert (drained.json()["scheduling"], drained.json()["reason"]) == ("draining", "fans")
        assert worker.heartbeat().json()["standing"] == "draining"
        assert (
            client.post("/api/v1/fleet/workers/gpu1/resume", content_type="application/json").json()["scheduling"]
            == "open"
        )

    def test_staff_may_revoke(self, enroll: Enroll) -> None:
        worker = enroll()
        client = Client()
        client.force_login(UserFactory.create(is_staff=True))

        assert client.delete(f"/api/v1/workers/{worker.id}").status_code == 204
        assert client.delete(f"/api/v1/workers/{worker.id}").status_code == 204
        assert client.delete(f"/api/v1/workers/{uuid.uuid4()}").status_code == 404
        assert worker.heartbeat().status_code == 401

    def test_csrf_protects_the_session(self, enroll: Enroll) -> None:
        worker = enroll()
        client = Client(enforce_csrf_checks=True)
        client.force_login(UserFactory.create(is_staff=True))

        for answer in (
            client.delete(f"/api/v1/workers/{worker.id}"),
            client.post("/api/v1/fleet/workers/gpu1/revoke", content_type="application/json"),
        ):
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
        assert worker.row.revoked_at is None

    def test_people_who_are_not_staff_may_not(self, enroll: Enroll) -> None:
        worker = enroll()
        client = Client()
        client.force_login(UserFactory.create())

        assert client.post("/api/v1/fleet/workers/gpu1/drain", content_type="application/json").status_code == 403
        assert client.delete(f"/api/v1/workers/{worker.id}").status_code == 403
        assert Client().post("/api/v1/fleet/workers/gpu1/drain").status_code == 401
        assert Client().delete(f"/api/v1/workers/{worker.id}").status_code == 401
        assert worker.row.revoked_at is None

    def test_a_worker_that_does_not_exist_is_404(self) -> None:
        client = Client()
        client.force_login(UserFactory.create(is_staff=True))

        answer = client.post("/api/v1/fleet/workers/nobody/drain", content_type="application/json")

        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")

    @pytest.mark.parametrize("name", ["%00", "a%00b", "x" * 64, "..%2F", "%F0%9F%92%A5"])
    def test_a_name_that_no_worker_can_have_is_404(self, name: str) -> None:
        client = Client()
        client.force_login(UserFactory.create(is_staff=True))

        answer = client.post(f"/api/v1/fleet/workers/{name}/drain", content_type="application/json")

        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")

    def test_an_act_against_the_standing_is_409(self, enroll: Enroll) -> None:
        enroll()
        client = Client()
        client.force_login(UserFactory.create(is_staff=True))
        client.post("/api/v1/fleet/workers/gpu1/disable", content_type="application/json")

        answer = client.post("/api/v1/fleet/workers/gpu1/resume", content_type="application/json")

        assert (answer.status_code, answer.json()["code"]) == (409, "wrong_standing")


def test_a_credential_is_looked_up_in_one_query(enroll: Enroll, django_assert_num_queries: Any) -> None:
    worker = enroll()
    headers = {"Authorization": f"Bearer {worker.credential}"}

    with django_assert_num_queries(1):
        worker.client.post(f"/api/v1/workers/{uuid.uuid4()}/heartbeat", headers=headers)
