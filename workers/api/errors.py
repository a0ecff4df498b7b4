"""One handler: everything that can go wrong with a call becomes `{"code", "detail", …}` with the right status.

Codes are stable and listed in `fixtures/protocol/v1/error.schema.json`; sentences may change.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.db import DataError, InterfaceError, OperationalError
from django.http import Http404
from rest_framework import exceptions
from rest_framework.response import Response

from jobs import errors as job_errors
from jobs.tokens import UnknownLeaseKey
from workers import errors as worker_errors

logger = logging.getLogger(__name__)

RETRY_AFTER_SECONDS = 2  # of a 503: long enough for a pool to empty, short against any interval of a worker
WHOLE_BODY = "body"  # the name under which an error of no single field is told

STATUSES: dict[type[Exception], int] = {
    worker_errors.CredentialInvalid: 401,
    worker_errors.CredentialRevoked: 401,
    worker_errors.TokenUnknown: 401,
    worker_errors.TokenUsed: 401,
    worker_errors.TokenExpired: 401,
    worker_errors.NotYourWorker: 403,
    worker_errors.AddressNotAllowed: 403,
    worker_errors.UnknownWorker: 404,
    worker_errors.NameTaken: 409,
    worker_errors.WrongStanding: 409,
    worker_errors.InvalidReport: 422,
    worker_errors.Throttled: 429,
    worker_errors.GpuWorkersDisabled: 503,
    job_errors.IllegalTransition: 409,
    job_errors.StaleLease: 409,
    job_errors.EventGap: 409,
    job_errors.SupersededSession: 409,
    job_errors.UnknownJob: 404,
}


class TooLarge(exceptions.APIException):
    """The body is larger than this call takes."""

    status_code = 413
    default_code = "too_large"

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"The body is larger than {limit_bytes // 1024} KiB.")


def answer_for(exc: Exception, context: Mapping[str, Any]) -> Response | None:
    """Return the answer for an exception, or None for a mistake of ours (which Django logs and answers with 500)."""
    match exc:
        case worker_errors.WorkerError() | job_errors.JobError():
            return _of_ours(exc)
        case exceptions.ValidationError():
            return _invalid(flatten(exc.detail))
        case exceptions.ParseError():
            return _answer(400, "malformed", str(exc.detail))
        case exceptions.UnsupportedMediaType():
            return _answer(400, "malformed", "The body must be JSON, with Content-Type: application/json.")
        case exceptions.Throttled():
            return _later(429, "throttled", worker_errors.Throttled.__doc__ or "", getattr(exc, "wait", None) or 1)
        case exceptions.NotAuthenticated() | exceptions.AuthenticationFailed():
            return _unauthenticated(str(exc.detail), context)
        case TooLarge():
            return _answer(413, "too_large", str(exc.detail))
        case RequestDataTooBig():
            return _answer(413, "too_large", "The body is too large.")
        case exceptions.MethodNotAllowed():
            return _answer(405, "method_not_allowed", str(exc.detail), {"Allow": _allowed(context)})
        case exceptions.NotFound() | Http404():
            return _answer(404, "not_found", "There is nothing here.")
        case exceptions.PermissionDenied() | PermissionDenied():
            return _answer(403, "forbidden", str(exc) or "You may not do that.")
        case exceptions.APIException():
            return _answer(exc.status_code, "refused", str(exc.detail))
        case OperationalError() | InterfaceError():
            # The pool is empty, the database restarts, a lock took too long: all of it passes.
            logger.warning("database unavailable: %s", exc, extra={"action": "database_unavailable"})
            return _later(503, "unavailable", "The control plane is busy; try again.", RETRY_AFTER_SECONDS)
        case UnknownLeaseKey():
            logger.error("lease key missing: %s", exc, extra={"action": "lease_key_missing"})
            return _later(503, "unavailable", str(exc), 60)
        case DataError():
            # The serializers bound every value; this is the net under them.
            logger.error("value refused by the database: %s", exc, extra={"action": "value_refused"})
            return _invalid({WHOLE_BODY: ["A value is out of bounds."]})
    return None


def flatten(detail: Any, path: str = "") -> dict[str, list[str]]:
    """Turn DRF's nested errors into sentences per dotted path: {"gpus.0.uuid": ["This field is required."]}."""
    if isinstance(detail, Mapping):
        found: dict[str, list[str]] = {}
        for name, value in detail.items():
            inner = path if name == "non_field_errors" else f"{path}.{name}" if path else str(name)
            found |= flatten(value, inner)
        return found
    if isinstance(detail, Sequence) and not isinstance(detail, str):
        if any(isinstance(entry, Mapping) for entry in detail):
            return flatten({position: entry for position, entry in enumerate(detail) if entry}, path)
        return {path or WHOLE_BODY: [str(entry) for entry in detail]}
    return {path or WHOLE_BODY: [str(detail)]}


def _of_ours(exc: worker_errors.WorkerError | job_errors.JobError) -> Response:
    status = next(STATUSES[kind] for kind in type(exc).__mro__ if kind in STATUSES)
    detail = str(exc)
    match exc:
        case worker_errors.CredentialRevoked():
            return _answer(status, exc.code, detail, _CHALLENGE, proof=exc.proof)
        case worker_errors.InvalidReport():
            return _invalid(exc.errors)
        case worker_errors.Throttled():
            return _later(status, exc.code, detail, exc.retry_after_seconds)
        case worker_errors.GpuWorkersDisabled():
            return _later(status, exc.code, detail, 60)
        case job_errors.EventGap():
            return _answer(status, exc.code, detail, expected_seq=exc.expected_seq)
    return _answer(status, exc.code, detail, _CHALLENGE if status == 401 else None)


_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="openface-worker"'}


def _unauthenticated(detail: str, context: Mapping[str, Any]) -> Response:
    view = context.get("view")
    challenge = view.get_authenticate_header(context["request"]) if view is not None else None
    return _answer(401, "unauthenticated", detail, {"WWW-Authenticate": challenge or "Session"})


def _allowed(context: Mapping[str, Any]) -> str:
    view = context.get("view")
    return ", ".join(view.allowed_methods) if view is not None else ""


def _invalid(errors: dict[str, list[str]]) -> Response:
    return _answer(422, "invalid", "Some fields are not valid.", errors=errors)


def _later(status: int, code: str, detail: str, seconds: float) -> Response:
    answer = _answer(status, code, detail, {"Retry-After": str(max(1, math.ceil(seconds)))})
    # An answer that we meant is no error of ours: without this, Django logs each 503 as one.
    answer._has_been_logged = True  # type: ignore[attr-defined]
    return answer


def _answer(status: int, code: str, detail: str, headers: dict[str, str] | None = None, /, **more: Any) -> Response:
    return Response({"code": code, "detail": detail, **more}, status=status, headers=headers)
