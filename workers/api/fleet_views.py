"""The operators' API of the fleet: look at workers, and act on their standing and on single leases of theirs."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import ClassVar

from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework.request import Request
from rest_framework.response import Response

from workers import former, held, standing, unreleased
from workers.api import serializers as wire
from workers.api.authentication import StaffSession, address_of
from workers.api.views import ERROR, IsOperator, WireView
from workers.models import Worker
from workers.overview import as_json, fleet, line_of

ACTS: dict[str, standing.Act] = {**standing.ACTS, "forget": former.forget}


class OperatorView(WireView):
    """An endpoint for members of staff."""

    authentication_classes = (StaffSession,)
    permission_classes = (IsOperator,)

    def _reason(self) -> str:
        """Why somebody acts, as the body says; it may be empty."""
        said = self.read(wire.StandingIn) if self.request.META.get("CONTENT_LENGTH") not in (None, "", "0") else {}
        return str(said.get("reason", ""))


class FleetView(OperatorView):
    """All workers with standing, GPUs and what is left on those that are drained. `?revoked=1` lists those, too."""

    @extend_schema(
        operation_id="fleet",
        parameters=[OpenApiParameter("revoked", bool, description="List revoked workers, too.")],
        responses={200: wire.FleetOut, "default": ERROR},
    )
    def get(self, request: Request) -> Response:
        seen = fleet(with_revoked=request.query_params.get("revoked", "") in ("1", "true"))
        workers = [as_json(line, now=seen.now) for line in seen.lines]
        return Response({"remote_workers_enabled": seen.remote_enabled, "workers": workers})


class FleetWorkerView(OperatorView):
    """One worker, as in the list."""

    @extend_schema(operation_id="fleet_worker", responses={200: wire.FleetWorkerOut, "default": ERROR})
    def get(self, request: Request, name: str) -> Response:
        line, now = line_of(standing.worker_named(name))
        return Response(as_json(line, now=now))


class StandingView(OperatorView):
    """An operator drains, resumes, disables, enables, revokes or forgets a worker."""

    @extend_schema(
        operation_id="set_standing", request=wire.StandingIn, responses={200: wire.StandingOut, "default": ERROR}
    )
    def post(self, request: Request, name: str, act: str) -> Response:
        worker = standing.worker_named(name)
        worker = ACTS[act](worker.pk, actor=request.user, address=address_of(request) or None, reason=self._reason())
        line, _now = line_of(worker)
        drain = None if line.drain is None else line.drain.as_json()
        return Response({**wire.StandingOut(worker).data, "drain": drain})


class LeaseActView(OperatorView):
    """An operator's act on what a worker has of one lease, by the names of both."""

    act: ClassVar[Callable[..., Worker]]

    @extend_schema(request=wire.StandingIn, responses={200: wire.FleetWorkerOut, "default": ERROR})
    def post(self, request: Request, name: str, lease_id: str) -> Response:
        worker = type(self).act(
            standing.worker_named(name).pk,
            uuid.UUID(lease_id),
            actor=request.user,
            address=address_of(request) or None,
            reason=self._reason(),
        )
        line, now = line_of(worker)
        return Response(as_json(line, now=now))


@extend_schema_view(post=extend_schema(operation_id="remove_held"))
class HeldView(LeaseActView):
    """Have one container on hold removed."""

    act = staticmethod(held.remove)


@extend_schema_view(post=extend_schema(operation_id="free_gpu"))
class FreeView(LeaseActView):
    """Free the GPUs on which an ended app has left memory that is not released."""

    act = staticmethod(unreleased.free)
