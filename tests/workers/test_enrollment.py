"""One-time enrollment: a token is swapped for a credential, exactly once, and the answer can be repeated."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from jobs.models import AuditEvent
from tests.workers.conftest import NONCE
from workers import credentials, enrollment
from workers.errors import NameTaken, UnknownWorker
from workers.models import EnrollmentAttempt, EnrollmentToken, Worker

pytestmark = pytest.mark.django_db


def call(token: str, nonce: str = NONCE, *, address: str = "127.0.0.1", **more: Any) -> Any:
    body = {"token": token, "nonce": nonce, "hostname": "gpu1.lan", "version": "0.1.0", **more}
    return Client(REMOTE_ADDR=address).post("/api/v1/workers/enroll", json.dumps(body), content_type="application/json")


def test_a_token_is_swapped_for_a_credential() -> None:
    issued = enrollment.issue_token("gpu1")

    answer = call(issued.token)

    assert answer.status_code == 201
    worker = Worker.objects.get(pk=answer.json()["worker_id"])
    credential = credentials.parse(answer.json()["credential"])
    assert credential is not None
    assert (worker.name, worker.hostname, worker.local) == ("gpu1", "gpu1.lan", False)
    assert credentials.matches(credential, worker.credential_hash)
    assert answer.json()["intervals"]["lease_seconds"] == 90


def test_neither_token_nor_credential_is_stored() -> None:
    issued = enrollment.issue_token("gpu1")
    answer = call(issued.token).json()
    secret = answer["credential"].rpartition("_")[2]

    rows = [str(vars(row)) for row in (*Worker.objects.all(), *EnrollmentToken.objects.all())]
    rows += [str(vars(row)) for row in AuditEvent.objects.all()]

    assert not any(issued.token in row or secret in row or NONCE in row for row in rows)


def test_the_same_token_and_nonce_repeat_the_answer() -> None:
    issued = enrollment.issue_token("gpu1")
    first = call(issued.token)

    second = call(issued.token)

    assert second.status_code == 201
    assert second.json() == first.json()
    assert Worker.objects.count() == 1


def test_a_used_token_is_refused_to_anybody_else() -> None:
    issued = enrollment.issue_token("gpu1")
    call(issued.token)

    answer = call(issued.token, nonce="another nonce of another machine")

    assert (answer.status_code, answer.json()["code"]) == (401, "token_used")
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_the_answer_is_not_repeated_after_the_tokens_life() -> None:
    issued = enrollment.issue_token("gpu1")
    call(issued.token)
    EnrollmentToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))

    answer = call(issued.token)

    assert (answer.status_code, answer.json()["code"]) == (401, "token_used")


def test_an_expired_token_is_refused() -> None:
    issued = enrollment.issue_token("gpu1")
    EnrollmentToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))

    answer = call(issued.token)

    assert (answer.status_code, answer.json()["code"]) == (401, "token_expired")


def test_an_unknown_token_is_refused() -> None:
    answer = call("oft_nobody-issued-this")

    assert (answer.status_code, answer.json()["code"]) == (401, "token_unknown")


def test_a_revoked_token_is_refused() -> None:
    issued = enrollment.issue_token("gpu1")

    assert enrollment.revoke_token(issued.row.pk)

    answer = call(issued.token)
    assert (answer.status_code, answer.json()["code"]) == (401, "token_expired")


def test_a_used_token_cannot_be_revoked() -> None:
    issued = enrollment.issue_token("gpu1")
    call(issued.token)

    assert not enrollment.revoke_token(issued.row.pk)


def test_a_name_is_issued_once() -> None:
    call(enrollment.issue_token("gpu1").token)

    with pytest.raises(NameTaken):
        enrollment.issue_token("GPU1")


def test_the_second_of_two_tokens_for_one_name_is_refused() -> None:
    first, second = enrollment.issue_token("gpu1"), enrollment.issue_token("gpu1")
    call(first.token)

    answer = call(second.token)

    assert (answer.status_code, answer.json()["code"]) == (409, "name_taken")


def test_a_replacement_keeps_the_worker_and_voids_the_old_credential() -> None:
    old = call(enrollment.issue_token("gpu1").token).json()
    issued = enrollment.issue_token("gpu1", replace=True)

    new = call(issued.token, nonce="a fresh machine, a fresh nonce").json()

    assert new["worker_id"] == old["worker_id"]
    row = Worker.objects.get()
    for text, valid in ((old["credential"], False), (new["credential"], True)):
        credential = credentials.parse(text)
        assert credential is not None
        assert credentials.matches(credential, row.credential_hash) is valid


def test_the_replaced_machines_enrollment_is_not_repeated() -> None:
    first = enrollment.issue_token("gpu1")
    call(first.token)
    call(enrollment.issue_token("gpu1", replace=True).token, nonce="a fresh machine, a fresh nonce")

    answer = call(first.token)

    assert (answer.status_code, answer.json()["code"]) == (401, "token_used")


def test_a_replacement_brings_a_revoked_worker_back() -> None:
    call(enrollment.issue_token("gpu1").token)
    Worker.objects.update(revoked_at=timezone.now())

    answer = call(enrollment.issue_token("gpu1", replace=True).token, nonce="a fresh machine, a fresh nonce")

    assert answer.status_code == 201
    assert Worker.objects.get().revoked_at is None


def test_there_must_be_something_to_replace() -> None:
    with pytest.raises(UnknownWorker):
        enrollment.issue_token("gpu1", replace=True)


@pytest.mark.parametrize("name", ["", "-gpu", "gpu 1", "a" * 64, "gpu/1", "gpu\n"])
def test_a_name_that_would_break_a_url_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        enrollment.issue_token(name)


def test_remote_workers_are_refused_while_the_feature_is_off(settings: Any) -> None:
    remote, local = enrollment.issue_token("gpu1"), enrollment.issue_token("here", local=True)
    settings.OPENFACE_GPU_WORKERS_ENABLED = False

    refused, taken = call(remote.token), call(local.token)

    assert (refused.status_code, refused.json()["code"]) == (503, "gpu_workers_disabled")
    assert refused.headers["Retry-After"]
    assert taken.status_code == 201
    assert EnrollmentToken.objects.get(pk=remote.row.pk).used_at is None  # and works when it is on again


def test_a_refusal_that_is_meant_is_no_error_in_the_log(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    token = enrollment.issue_token("gpu1").token
    settings.OPENFACE_GPU_WORKERS_ENABLED = False

    refused = call(token)

    assert refused.status_code == 503
    assert [record.getMessage() for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


def test_issuing_is_audited_without_the_token() -> None:
    enrollment.issue_token("gpu1", gateway_url="http://10.0.0.5:8787")

    event = AuditEvent.objects.get()
    assert (event.act, event.actor_name) == ("enrollment_token_issued", "command line")
    assert event.after == {
        "worker": "gpu1",
        "local": False,
        "gateway_url": "http://10.0.0.5:8787",
        "replaces": False,
    }


class TestGatewayAddress:
    def test_an_operators_address_is_approved_and_stays(self) -> None:
        issued = enrollment.issue_token("gpu1", gateway_url="http://127.0.0.1:18787/")

        call(issued.token, gateway_url="http://10.9.9.9:8787")

        worker = Worker.objects.get()
        assert (worker.gateway_url, worker.gateway_proposed_url) == ("http://127.0.0.1:18787", "")
        assert worker.gateway_fixed

    def test_the_address_that_the_enrollment_came_from_is_approved(self) -> None:
        call(enrollment.issue_token("gpu1").token, address="10.0.0.5", gateway_url="http://10.0.0.5:8787")

        assert Worker.objects.get().gateway_url == "http://10.0.0.5:8787"

    @pytest.mark.parametrize("url", ["http://10.0.0.6:8787", "http://gpu1.lan:8787", "https://example.org"])
    def test_any_other_address_waits_for_an_operator(self, url: str) -> None:
        call(enrollment.issue_token("gpu1").token, address="10.0.0.5", gateway_url=url)

        worker = Worker.objects.get()
        assert (worker.gateway_url, worker.gateway_proposed_url) == ("", url)
        assert worker.gateway_status == Worker.Gateway.PROPOSED

    @pytest.mark.parametrize(
        "url",
        [
            "http://127.0.0.1:8787",
            "http://127.1.2.3:8787",
            "http://localhost:8787",
            "http://[::1]:8787",
            "http://[::ffff:127.0.0.1]:8787",
            "http://0.0.0.0:8787",
            "http://169.254.169.254",
            "http://[fe80::1]:8787",
            "http://localhost:8090",
            "ftp://10.0.0.5:8787",
            "http://user:secret@10.0.0.5:8787",
            "http://10.0.0.5:99999",
            "http://10.0.0.5:8787/?next=x",
            "http://10.0.0.5:8787/\r\nX: y",
            "http://" + "a" * 300,
        ],
    )
    def test_an_address_that_no_worker_may_propose_is_refused_with_a_sentence(self, url: str) -> None:
        answer = call(enrollment.issue_token("gpu1").token, address="10.0.0.5", gateway_url=url)

        assert answer.status_code == 201  # a wrong address costs the worker its service jobs, not its identity
        worker = Worker.objects.get()
        assert (worker.gateway_url, worker.gateway_proposed_url) == ("", "")
        assert worker.gateway_status == Worker.Gateway.REFUSED
        assert worker.gateway_detail

    def test_a_local_worker_may_propose_loopback(self) -> None:
        issued = enrollment.issue_token("here", local=True)

        call(issued.token, gateway_url="http://127.0.0.1:18787")

        assert Worker.objects.get().gateway_url == "http://127.0.0.1:18787"

    def test_not_even_a_local_worker_may_propose_the_control_plane(self) -> None:
        call(enrollment.issue_token("here", local=True).token, gateway_url="http://127.0.0.1:8091")

        worker = Worker.objects.get()
        assert (worker.gateway_url, worker.gateway_status) == ("", Worker.Gateway.REFUSED)


@pytest.mark.parametrize(
    ("peer", "kept"),
    [("fe80::1%eth0", "fe80::1"), ("::ffff:10.0.0.5", "10.0.0.5"), ("2001:DB8::5", "2001:db8::5"), ("", None)],
)
def test_whatever_the_peer_looks_like_its_address_is_kept(peer: str, kept: str | None) -> None:
    answer = call(enrollment.issue_token("gpu1").token, address=peer)

    assert answer.status_code == 201
    assert Worker.objects.get().enrolled_from == kept


class TestRateLimit:
    def test_enrollment_is_limited_per_address(self, settings: Any) -> None:
        settings.OPENFACE_ENROLL_PER_MINUTE = 3

        answers = [call("oft_guess", address="10.0.0.9") for _ in range(5)]

        # The clock's minute may change once on the way: then up to three more are let through.
        codes = [answer.json()["code"] for answer in answers]
        assert codes[:3] == ["token_unknown"] * 3
        if EnrollmentAttempt.objects.count() == 1:
            assert codes[3:] == ["throttled"] * 2
            assert 1 <= int(answers[4].headers["Retry-After"]) <= 60
        assert call("oft_guess", address="10.0.0.10").json()["code"] == "token_unknown"

    def test_a_refused_call_uses_no_token(self, settings: Any) -> None:
        settings.OPENFACE_ENROLL_PER_MINUTE = 0
        issued = enrollment.issue_token("gpu1")

        assert call(issued.token).status_code == 429

        settings.OPENFACE_ENROLL_PER_MINUTE = 10
        assert call(issued.token).status_code == 201

    def test_old_counts_are_dropped(self) -> None:
        EnrollmentAttempt.objects.create(address="10.0.0.1", minute=timezone.now() - timedelta(hours=1), count=4)

        call("oft_guess", address="10.0.0.2")

        assert not EnrollmentAttempt.objects.filter(address="10.0.0.1").exists()


@pytest.mark.django_db(transaction=True)
class TestRaces:
    def test_two_machines_with_one_token_get_one_credential(self, at_once: Any, settings: Any) -> None:
        settings.OPENFACE_ENROLL_PER_MINUTE = 1000
        issued = enrollment.issue_token("gpu1")

        answers = at_once([lambda n=n: call(issued.token, nonce=f"machine number {n:04}") for n in range(8)])

        assert sorted(answer.status_code for answer in answers) == [201] + [401] * 7
        assert Worker.objects.count() == 1

    def test_one_machine_that_asks_many_times_at_once_gets_one_answer(self, at_once: Any, settings: Any) -> None:
        settings.OPENFACE_ENROLL_PER_MINUTE = 1000
        issued = enrollment.issue_token("gpu1")

        answers = at_once([lambda: call(issued.token) for _ in range(8)])

        assert {answer.status_code for answer in answers} == {201}
        assert len({answer.content for answer in answers}) == 1

    def test_two_tokens_for_one_name_make_one_worker(self, at_once: Any, settings: Any) -> None:
        settings.OPENFACE_ENROLL_PER_MINUTE = 1000
        tokens = [enrollment.issue_token("gpu1").token for _ in range(8)]

        answers = at_once([lambda token=token: call(token) for token in tokens])

        assert sorted(answer.status_code for answer in answers) == [201] + [409] * 7

    def test_attempts_are_counted_across_connections(self, at_once: Any, settings: Any) -> None:
        settings.OPENFACE_ENROLL_PER_MINUTE = 5

        answers = at_once([lambda: call("oft_guess") for _ in range(16)])

        let_through = sum(answer.status_code == 401 for answer in answers)
        assert let_through == sum(min(row.count, 5) for row in EnrollmentAttempt.objects.all())


def test_queries_do_not_grow_with_the_number_of_tokens(django_assert_max_num_queries: Any) -> None:
    issued = [enrollment.issue_token(f"gpu{n}") for n in range(5)]

    with django_assert_max_num_queries(16):
        call(issued[3].token)

    assert connection.vendor == "postgresql"
