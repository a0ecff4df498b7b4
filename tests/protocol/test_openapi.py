"""The served OpenAPI description is complete, valid in its references, and tells of no 500."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from django.test import Client
from drf_spectacular.validation import validate_schema

CALLS = {
    ("/api/v1/workers/enroll", "post"): (201,),
    ("/api/v1/workers/register", "post"): (200,),
    ("/api/v1/workers/{worker_id}", "delete"): (204,),
    ("/api/v1/workers/{worker_id}/heartbeat", "post"): (200,),
    ("/api/v1/workers/{worker_id}/jobs/claim", "post"): (200, 204),
    ("/api/v1/workers/{worker_id}/jobs/{job_id}/events", "post"): (200,),
    ("/api/v1/workers/{worker_id}/jobs/{job_id}/lease", "post"): (200,),
}


@pytest.fixture(scope="module")
def schema() -> Any:
    answer = Client().get("/api/v1/schema/")
    assert answer.status_code == 200
    return yaml.safe_load(answer.content)


def test_it_is_a_valid_openapi_3_document(schema: Any) -> None:
    validate_schema(schema)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[0])
def test_each_call_of_the_protocol_is_described(schema: Any, call: tuple[str, str]) -> None:
    path, method = call
    operation = schema["paths"][path][method]

    described = operation["responses"]

    assert {str(status) for status in CALLS[call]} | {"default"} == set(described)
    assert described["default"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/ErrorOut"}
    if method == "post":
        assert "$ref" in operation["requestBody"]["content"]["application/json"]["schema"]


def test_the_claims_key_is_a_required_header(schema: Any) -> None:
    parameters = schema["paths"]["/api/v1/workers/{worker_id}/jobs/claim"]["post"]["parameters"]

    (key,) = [each for each in parameters if each["in"] == "header"]
    assert (key["name"], key["required"]) == ("Idempotency-Key", True)


def test_events_are_told_apart_by_their_kind(schema: Any) -> None:
    event = schema["components"]["schemas"]["EventIn"]

    assert event["discriminator"]["propertyName"] == "kind"
    assert set(event["discriminator"]["mapping"]) >= {"building", "running", "exited", "failed", "snapshot"}


def test_only_the_enrollment_needs_no_credential(schema: Any) -> None:
    assert schema["paths"]["/api/v1/workers/enroll"]["post"].get("security") in (None, [])
    assert schema["paths"]["/api/v1/workers/register"]["post"]["security"] == [{"workerCredential": []}]
