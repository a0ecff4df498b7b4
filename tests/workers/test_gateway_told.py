"""A worker hears which of its addresses the control plane calls, and in a sentence why its gateway does not serve."""

from __future__ import annotations

from typing import Any

import pytest

from tests.protocol.test_server_messages import complaints
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
