"""The operators' API on Spaces: where one may run, and the queue. Only operators: the answers name everybody."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.http import Http404
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from jobs import queue
from jobs.line import COUNTED_PLACES
from spaces.access import get_space
from spaces.forge.errors import NotFound
from spaces.models import Space
from spaces.placement import REASON_MAX_LENGTH, Placement, PlacementRefused, Wish, place, wish
from spaces.placement_preview import preview
from workers.api import serializers as wire
from workers.api.authentication import address_of
from workers.api.fields import Text
from workers.api.fleet_views import OperatorView
from workers.api.views import ERROR
from workers.errors import InvalidReport


class PlacementIn(wire.Message):
    """Where a Space may run, and why. `worker` is a name, with the placement "worker" only."""

    placement = serializers.ChoiceField(choices=Placement.values)
    worker = Text(required=False, allow_null=True, default=None, max_length=63)
    reason = Text(clip=REASON_MAX_LENGTH, required=False, default="")


class RequirementOut(serializers.Serializer[Any]):
    """A class of needs. `worker`: the one that an operator named."""

    kind = serializers.ChoiceField(choices=("cpu", "gpu"))
    gpu_count = serializers.IntegerField()
    vram_mib = serializers.IntegerField(allow_null=True)
    exclusive = serializers.BooleanField()
    features = serializers.ListField(child=serializers.CharField())
    worker = serializers.CharField(allow_null=True)


class SentenceOut(serializers.Serializer[Any]):
    """Why one worker, or one GPU of it, does not take a job. `never`: waiting alone does not change it."""

    worker = serializers.CharField()
    gpu = serializers.CharField(allow_blank=True)
    code = serializers.CharField()
    reason = serializers.CharField()
    never = serializers.BooleanField()


class OutlookOut(serializers.Serializer[Any]):
    code = serializers.CharField()
    detail = serializers.CharField()
    ready = serializers.ListField(child=serializers.CharField(), help_text="Workers that could take it now.")


class PlacementOut(serializers.Serializer[Any]):
    """A placement as it is, and what it means now. `moved`: queued jobs that it gave other needs."""

    space = serializers.CharField()
    placement = serializers.ChoiceField(choices=Placement.values)
    worker = serializers.CharField(allow_null=True)
    requirement = RequirementOut()
    needs = serializers.CharField()
    outlook = OutlookOut()
    effects = serializers.ListField(child=serializers.CharField())
    workers = SentenceOut(many=True)
    changed = serializers.BooleanField()
    moved = serializers.ListField(child=serializers.UUIDField())


class QueuedOut(serializers.Serializer[Any]):
    """One queued job. `place` counts from 1; null where it does not stand in the line."""

    job = serializers.UUIDField()
    space = serializers.CharField()
    revision = serializers.CharField()
    state = serializers.CharField()
    kind = serializers.CharField()
    mode = serializers.CharField()
    requirement = RequirementOut()
    worker = serializers.CharField(allow_null=True)
    attempts = serializers.IntegerField()
    queued_at = serializers.CharField()
    state_since = serializers.CharField()
    seconds_in_state = serializers.FloatField()
    seconds_since_queued = serializers.FloatField()
    place = serializers.IntegerField(allow_null=True)
    code = serializers.CharField()
    reason = serializers.CharField()
    workers = SentenceOut(many=True)


class QueueOut(serializers.Serializer[Any]):
    """The head of the line. `length` counts all of it; `cut` says whether it goes on behind what is listed."""

    now = serializers.DateTimeField()
    length = serializers.IntegerField()
    cut = serializers.BooleanField()
    line = QueuedOut(many=True)
    beside = QueuedOut(many=True, help_text="Queued, but waiting for something else than a worker.")


class PlacementView(OperatorView):
    """Where a Space may run: look, or set it."""

    @extend_schema(operation_id="placement", responses={200: PlacementOut, "default": ERROR})
    def get(self, request: Request, owner: str, repo: str) -> Response:
        space = _space(request, owner, repo)
        return _answer(space, Wish.of(space))

    @extend_schema(operation_id="set_placement", request=PlacementIn, responses={200: PlacementOut, "default": ERROR})
    def put(self, request: Request, owner: str, repo: str) -> Response:
        asked = self.read(PlacementIn)
        space = _space(request, owner, repo)
        try:
            with transaction.atomic():
                done = place(
                    space.pk,
                    wish(asked["placement"], asked["worker"]),
                    actor=request.user,
                    address=address_of(request) or None,
                    reason=asked["reason"].strip(),
                )
        except PlacementRefused as error:
            raise InvalidReport({"placement": [str(error)]}) from None
        return _answer(done.space, done.after, changed=done.changed, moved=[str(job.pk) for job in done.moved])


class QueueView(OperatorView):
    """The line with its reasons, the oldest first; capped, and says so."""

    @extend_schema(
        operation_id="queue",
        parameters=[OpenApiParameter("limit", int, description=f"1 to {COUNTED_PLACES}, default {COUNTED_PLACES}.")],
        responses={200: QueueOut, "default": ERROR},
    )
    def get(self, request: Request) -> Response:
        asked = request.query_params.get("limit", str(COUNTED_PLACES))
        if not (asked.isascii() and asked.isdecimal() and 1 <= int(asked[:9]) <= COUNTED_PLACES):
            raise InvalidReport({"limit": [f"A number from 1 to {COUNTED_PLACES} is needed."]})
        seen = queue.read(limit=int(asked))
        answer = {
            "now": seen.now,
            "length": seen.length,
            "cut": seen.is_cut,
            "line": [queue.as_json(entry, now=seen.now) for entry in seen.line],
            "beside": [queue.as_json(entry, now=seen.now) for entry in seen.beside],
        }
        return Response(QueueOut(answer).data)


def _space(request: Request, owner: str, repo: str) -> Space:
    if "\x00" in owner + repo:  # no database takes it
        raise Http404
    try:
        return get_space(request.user, owner, repo)
    except NotFound:
        raise Http404 from None


def _answer(space: Space, to: Wish, *, changed: bool = False, moved: list[str] | None = None) -> Response:
    answer = {"space": str(space), **preview(space, to).as_json(), "changed": changed, "moved": moved or []}
    return Response(PlacementOut(answer).data)
