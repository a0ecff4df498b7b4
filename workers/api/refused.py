"""What is done about a worker's report that is refused as invalid, before the refusal is answered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from django.db import DataError
from rest_framework import exceptions
from rest_framework.request import Request

from workers import refusals, registry
from workers.api import serializers as wire
from workers.api.errors import WHOLE_BODY, TooLarge, answer_for
from workers.api.throttling import BUCKETS
from workers.errors import InvalidReport
from workers.models import Worker

# Answered with 400, 413 or 422: to say the same again is of no use.
INVALID = (
    exceptions.ValidationError,
    exceptions.ParseError,
    exceptions.UnsupportedMediaType,
    TooLarge,
    InvalidReport,
    DataError,
)
NOTES_RATE = "0.1/3"  # per worker and process: of one that is wrong in a new way with every beat


@contextmanager
def noted(request: Request, worker: Worker) -> Iterator[None]:
    """Note on the worker's row why its report is refused, and raise the refusal on.

    A worker that speaks is alive, even where the rest of what it says is refused. Raises SupersededSession for what an
    older session says, however wrong that is.
    """
    try:
        yield
    except INVALID as error:
        session, beat = _sign_of_life(request)
        if session is not None:  # without its beat's number: what that beat said was not taken
            registry.note_alive(worker.pk, session=session)
        if not BUCKETS.take(f"refusals:{worker.pk}", rate=NOTES_RATE):
            refusals.note(worker.pk, _fields(error), session=session, beat=beat)
        raise


def _sign_of_life(request: Request) -> tuple[int | None, int | None]:
    """Session and beat of a report, as far as it is JSON and has both."""
    try:
        sign = wire.SignOfLifeIn(data=request.data)
    except exceptions.APIException:
        return None, None
    return (sign.validated_data["session"], sign.validated_data["beat"]) if sign.is_valid() else (None, None)


def _fields(error: Exception) -> Mapping[str, Sequence[str]]:
    """What the answer says of each field; of the body where it is no field that is wrong."""
    answer = answer_for(error, {})
    said = answer.data if answer is not None else {}
    fields: Mapping[str, Sequence[str]] = said.get("errors") or {WHOLE_BODY: [str(said.get("detail", error))]}
    return fields
