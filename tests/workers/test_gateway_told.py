"""A worker hears which of its addresses the control plane calls, and in a sentence why its gateway does not serve."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from tests.factories import UserFactory
from tests.protocol.test_server_messages import complaints
from workers import standing
from workers.errors import WrongStanding
from workers.models import Worker

pytestmark = pytest.mark.django_db

Enroll = Any
APPROVED, OTHER = "http://10.0.0.5:8787", "http://10.0.0.6:8787"
LOOPBACK = "127.0.0.1 is this machine as seen from itself: set WORKER_PUBLIC_URL to an address others can reach."
CLOSED = "TCP 8787 of 10.0.0.5 is closed towards the control plane."


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"gateway_url": APPROVED, "gateway_status": "ok"}, ("ok", APPROVED, None)),
        ({"gateway_url": APPROVED, "gateway_status": ""}, (None, APPROVED, None)),
        (
            {"gateway_url": APPROVED, "gateway_status": "refused", "gateway_detail": CLOSED},
            ("refused", APPROVED, CLOSED),
        ),
        ({"gateway_status": "refused", "gateway_detail": LOOPBACK}, ("refused", None, LOOPBACK)),
        (
            {"gateway_proposed_url": OTHER, "gateway_status": "proposed"},
            ("proposed", None, f"{OTHER} waits until an operator approves it."),
        ),
        (
            {"gateway_url": APPROVED, "gateway_proposed_url": OTHER, "gateway_status": "ok"},
            ("proposed", APPROVED, f"{OTHER} waits until an operator approves it. Until then {APPROVED} counts."),
        ),
        ({"gateway_status": ""}, (None, None, "This worker has no gateway address: set WORKER_PUBLIC_URL on it.")),
    ],
    ids=["serves", "not looked at", "closed", "refused", "waits", "waits beside another", "none"],
)
def test_every_answer_says_how_its_gateway_stands_and_why(
    enroll: Enroll, row: dict[str, str], told: tuple[str | None, str | None, str | None]
) -> None:
    worker = enroll()
    nothing = {"gateway_url": "", "gateway_proposed_url": "", "gateway_detail": ""}
    status = row["gateway_status"] or Worker.Gateway.UNKNOWN
    Worker.objects.filter(pk=worker.id).update(**{**nothing, **row, "gateway_status": status})

    answer = worker.heartbeat().json()

    assert (answer["gateway"], answer["gateway_url"], answer["gateway_detail"]) == told
    assert complaints("heartbeat.response", answer) == []


def test_an_address_that_is_refused_is_told_with_its_reason_at_the_start(enroll: Enroll) -> None:
    worker = enroll("gpu1", register=False)
    Worker.objects.filter(pk=worker.id).update(gateway_url="", gateway_fixed=False)

    answer = worker.register(gateway_url="http://127.0.0.1:8787")

    assert (answer["gateway"], answer["gateway_url"], answer["gateway_detail"]) == ("refused", None, LOOPBACK)


class TestRefusedBesideAnApprovedOne:
    URL = "http://127.0.0.1:8787"
    WHY = f"{URL} is refused: {LOOPBACK} {APPROVED} goes on counting."

    @pytest.fixture
    def worker(self, enroll: Enroll) -> Any:
        worker = enroll("gpu1", register=False)
        facts = {"gateway_url": APPROVED, "gateway_status": Worker.Gateway.OK, "gateway_fixed": False}
        Worker.objects.filter(pk=worker.id).update(**facts)
        return worker

    def test_the_worker_is_told_why_and_serves_as_before(self, worker: Any) -> None:
        first = worker.register(gateway_url=self.URL)
        then = worker.heartbeat().json()

        for answer in (first, then):
            assert (answer["gateway"], answer["gateway_url"], answer["gateway_detail"]) == ("ok", APPROVED, self.WHY)

    def test_the_fleet_page_says_so(self, worker: Any) -> None:
        worker.register(gateway_url=self.URL)
        staff = Client()
        staff.force_login(UserFactory.create(is_staff=True))

        page = staff.get("/fleet/").content.decode()

        assert f"The gateway address {self.URL} that it proposes is refused: {LOOPBACK}" in page
        assert "It proposes another gateway address" not in page

    def test_no_operator_approves_it_by_mistake(self, worker: Any) -> None:
        worker.register(gateway_url=self.URL)

        with pytest.raises(WrongStanding, match=r"may not propose http://127\.0\.0\.1:8787: 127\.0\.0\.1 is"):
            standing.approve_gateway(worker.id, actor=None)

        assert worker.row.gateway_url == APPROVED

    def test_it_is_forgotten_with_a_better_one(self, worker: Any) -> None:
        worker.register(gateway_url=self.URL)

        assert worker.register(gateway_url=APPROVED)["gateway_detail"] is None
        assert worker.register(gateway_url=OTHER)["gateway"] == "proposed"
