"""No message, however mangled, is a fault of the server's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.workers.conftest import WireWorker, golden
from tests.workers.taken_jobs import with_a_job
from workers.api.throttling import BUCKETS

pytestmark = pytest.mark.django_db
Enroll = Any
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a message where a value stands."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for name, each in inner for place in places(each, (*path, name)))]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_message_however_mangled_is_a_500(bad_input_worker: Any, data: st.DataObject) -> None:
    worker, claimed = bad_input_worker
    BUCKETS._levels.clear()
    name, path = data.draw(
        st.sampled_from(
            [
                ("register.request.full", "register"),
                ("heartbeat.request.full", f"{worker.id}/heartbeat"),
                ("claim.request.full", f"{worker.id}/jobs/claim"),
                ("events.request.full", f"{worker.id}/jobs/{claimed['id']}/events"),
                ("lease.request.minimal", f"{worker.id}/jobs/{claimed['id']}/lease"),
            ]
        )
    )
    body = golden(name) | {"session": 1}
    if "lease" in body:
        body["lease"] = claimed["lease"]
    place = data.draw(st.sampled_from([each for each in places(body) if each]))
    target = body
    for step in place[:-1]:
        target = target[step]
    target[place[-1]] = data.draw(json_values)

    answer = worker.post(path, json.dumps(body), **{"Idempotency-Key": "hypothesis"})

    assert answer.status_code < 500, answer.content
    assert answer.status_code in (200, 204) or answer.json()["code"]


@pytest.fixture
def bad_input_worker(enroll: Enroll) -> tuple[WireWorker, Any]:
    return with_a_job(enroll)
