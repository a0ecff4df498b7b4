"""The worker API v1: parse, authorise, call one function, answer."""

from __future__ import annotations

import re
import uuid
from typing import Any

from django.conf import settings
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.permissions import BasePermission
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs import lifecycle
from jobs.models import Job
from workers import claiming, enrollment, registry, standing
from workers.addresses import check_network
from workers.api import serializers as wire
from workers.api.authentication import StaffSession, WorkerAuthentication, address_of
from workers.api.errors import TooLarge, answer_for
from workers.api.parsing import BODY_MAX_BYTES, EVENTS_BODY_MAX_BYTES, StrictJSONParser
from workers.api.refused import noted
from workers.api.throttling import HeartbeatThrottle, WorkerThrottle
from workers.errors import CredentialInvalid, InvalidReport, NotYourWorker
from workers.intervals import intervals
from workers.models import Worker

ERROR = OpenApiResponse(wire.ErrorOut, description="Any answer of 400 and above.")
KEY_HEADER = "Idempotency-Key"
_KEY = re.compile(r"[\x21-\x7e]{1,128}")


class JsonAlways(BaseContentNegotiation):
    """Both sides speak JSON; an Accept header is no reason to refuse."""

    def select_parser(self, request: Request, parsers: Any) -> BaseParser | None:
        kind = (request.content_type or "").partition(";")[0].strip().lower()
        return next((parser for parser in parsers if parser.media_type == kind), None)

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> tuple[Any, str]:
        renderer: BaseRenderer = next(iter(renderers))
        return renderer, str(renderer.media_type)


class IsThatWorker(BasePermission):
    """The credential is a worker's, and the `{id}` of the path, if there is one, is that worker."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        if not isinstance(request.auth, Worker):
            raise CredentialInvalid
        if view.kwargs.get("worker_id", request.auth.pk) != request.auth.pk:
            raise NotYourWorker
        return True


class IsOperator(BasePermission):
    """A member of staff."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        return bool(request.user and request.user.is_active and request.user.is_staff)


class WireView(APIView):
    """What all endpoints share: strict JSON, bounded bodies, one shape of errors."""

    parser_classes = (StrictJSONParser,)
    content_negotiation_class = JsonAlways
    body_max_bytes = BODY_MAX_BYTES

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        length = request.META.get("CONTENT_LENGTH") or "0"
        if length.isdecimal() and int(length[:20]) > self.body_max_bytes:
            raise TooLarge(self.body_max_bytes)
        super().initial(request, *args, **kwargs)

    def get_exception_handler(self) -> Any:
        return answer_for

    def read(self, serializer: type[wire.Message]) -> Any:
        """The request's body as a plain value. Raises ValidationError, ParseError, TooLarge."""
        incoming = serializer(data=self.request.data)
        incoming.is_valid(raise_exception=True)
        return incoming.validated_data


class WorkerView(WireView):
    """An endpoint for one worker, opened by that worker's credential."""

    authentication_classes = (WorkerAuthentication,)
    permission_classes = (IsThatWorker,)
    throttle_classes = (WorkerThrottle,)

    @property
    def worker(self) -> Worker:
        assert isinstance(self.request.auth, Worker)
        return self.request.auth


class EnrollView(WireView):
    """Swap a one-time token for a credential."""

    @extend_schema(
        operation_id="enroll", request=wire.EnrollIn, responses={201: wire.EnrollOut, "default": ERROR}, auth=[]
    )
    def post(self, request: Request) -> Response:
        address = address_of(request)
        check_network(address)
        enrollment.count_attempt(address)
        enrolled = enrollment.enroll(self.read(wire.EnrollIn), address=address)
        answer = {
            "worker_id": enrolled.worker.pk,
            "name": enrolled.worker.name,
            "credential": str(enrolled.credential),
            "intervals": intervals(),
        }
        return Response(wire.EnrollOut(answer).data, status=201)


class RegisterView(WorkerView):
    """Describe the machine after each start; a new session begins and older ones end."""

    throttle_classes = (HeartbeatThrottle,)

    @extend_schema(
        operation_id="register", request=wire.RegisterIn, responses={200: wire.RegisterOut, "default": ERROR}
    )
    def post(self, request: Request) -> Response:
        with noted(request, self.worker):
            answer = registry.register(self.worker.pk, self.read(wire.RegisterIn))
        return Response(wire.RegisterOut(answer).data)


class HeartbeatView(WorkerView):
    """Prove life, renew leases, learn what to do with each."""

    throttle_classes = (HeartbeatThrottle,)

    @extend_schema(
        operation_id="heartbeat", request=wire.HeartbeatIn, responses={200: wire.HeartbeatOut, "default": ERROR}
    )
    def post(self, request: Request, worker_id: uuid.UUID) -> Response:
        with noted(request, self.worker):
            answer = registry.heartbeat(self.worker.pk, self.read(wire.HeartbeatIn))
        return Response(wire.HeartbeatOut(answer).data)


class ClaimView(WorkerView):
    """Claim the oldest job that fits; 204 where there is none."""

    @extend_schema(
        operation_id="claim",
        request=wire.ClaimIn,
        parameters=[
            OpenApiParameter(
                KEY_HEADER, str, OpenApiParameter.HEADER, required=True, description="Repeats the same answer."
            )
        ],
        responses={
            200: wire.ClaimOut,
            204: OpenApiResponse(description="Nothing for this worker now."),
            "default": ERROR,
        },
    )
    def post(self, request: Request, worker_id: uuid.UUID) -> Response:
        key = request.headers.get(KEY_HEADER, "")
        if not _KEY.fullmatch(key):
            raise InvalidReport({KEY_HEADER: ["1 to 128 visible ASCII characters are needed."]})
        data_url = claiming.data_url_for(called_as=request.get_host(), scheme=request.scheme or "http")
        found = claiming.claim(self.worker, self.read(wire.ClaimIn), key=key, data_url=data_url)
        return Response(status=204) if found is None else Response(wire.ClaimOut(found).data)


class EventsView(WorkerView):
    """Report events and log text of one job, in order, as often as needed."""

    body_max_bytes = EVENTS_BODY_MAX_BYTES

    @extend_schema(operation_id="events", request=wire.EventsIn, responses={200: wire.EventsOut, "default": ERROR})
    def post(self, request: Request, worker_id: uuid.UUID, job_id: uuid.UUID) -> Response:
        batch = self.read(wire.EventsIn)
        recorded = lifecycle.record(
            self.worker.pk,
            session=batch.session,
            job_id=job_id,
            lease_id=batch.lease,
            reports=[lifecycle.Report(event.seq, event.kind, event.data) for event in batch.events],
            logs=[lifecycle.LogText(log.stream, log.offset, log.text) for log in batch.logs],
        )
        answer = {
            "accepted_through": recorded.accepted_through,
            "log_offsets": recorded.log_offsets,
            "state": recorded.state,
            "stop": _stop_wish(job_id) if recorded.stop else None,
        }
        return Response(wire.EventsOut(answer).data)


class LeaseView(WorkerView):
    """Renew one lease, e.g. before the container is created."""

    throttle_classes = (HeartbeatThrottle,)

    @extend_schema(operation_id="renew", request=wire.LeaseIn, responses={200: wire.LeaseOut, "default": ERROR})
    def post(self, request: Request, worker_id: uuid.UUID, job_id: uuid.UUID) -> Response:
        renewal = self.read(wire.LeaseIn)
        seconds = lifecycle.renew_lease(self.worker.pk, session=renewal.session, job_id=job_id, lease_id=renewal.lease)
        return Response(wire.LeaseOut({"expires_in_s": seconds}).data)


class WorkerDetailView(WireView):
    """Revoke a worker: by a member of staff, or by the worker itself when its owner says `leave`."""

    authentication_classes = (WorkerAuthentication, StaffSession)

    @extend_schema(operation_id="revoke", responses={204: None, "default": ERROR})
    def delete(self, request: Request, worker_id: uuid.UUID) -> Response:
        if isinstance(request.auth, Worker):
            IsThatWorker().has_permission(request, self)
            reason = "the worker left by itself"
        else:
            if not IsOperator().has_permission(request, self):
                self.permission_denied(request, message="Only staff may revoke workers.")
            reason = ""
        standing.revoke(worker_id, actor=request.user, address=address_of(request) or None, reason=reason)
        return Response(status=204)


class NothingHere(WireView):
    """Any other path below /workers/: 404 in the API's own shape."""

    schema = None

    def handle(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return Response({"code": "not_found", "detail": "There is nothing here."}, status=404)

    get = post = put = patch = delete = handle


def _stop_wish(job_id: uuid.UUID) -> dict[str, Any]:
    reason = Job.objects.values_list("stop_reason", flat=True).get(pk=job_id)
    return {"reason": reason or None, "grace_s": settings.OPENFACE_STOP_GRACE_SECONDS}
