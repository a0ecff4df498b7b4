"""The worker protocol v1 as serializers. The wire itself lives in `fixtures/protocol/v1/`; the tests hold this to it.

Requests become the plain values of `workers/reports.py`. Unknown fields are ignored, a missing optional field and null
both mean "not known". Free text for people is clipped, identities and numbers are refused when they are out of bounds;
of a GPU, only what it is called and whose it is: a reading of a driver in trouble is not known, and refuses nothing.
"""

from __future__ import annotations

from workers.api.serializers.base import ErrorOut, Message
from workers.api.serializers.claims import ClaimIn, ClaimOut, LeaseIn, LeaseOut
from workers.api.serializers.events import EVENT_KINDS, EventIn, EventsIn, EventsOut
from workers.api.serializers.fleet import FleetOut, FleetWorkerOut, StandingIn, StandingOut
from workers.api.serializers.presence import (
    EnrollIn,
    EnrollOut,
    HeartbeatIn,
    HeartbeatOut,
    RegisterIn,
    RegisterOut,
    SignOfLifeIn,
)

__all__ = [
    "EVENT_KINDS",
    "ClaimIn",
    "ClaimOut",
    "EnrollIn",
    "EnrollOut",
    "ErrorOut",
    "EventIn",
    "EventsIn",
    "EventsOut",
    "FleetOut",
    "FleetWorkerOut",
    "HeartbeatIn",
    "HeartbeatOut",
    "LeaseIn",
    "LeaseOut",
    "Message",
    "RegisterIn",
    "RegisterOut",
    "SignOfLifeIn",
    "StandingIn",
    "StandingOut",
]
