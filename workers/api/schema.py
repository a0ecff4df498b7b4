"""What the OpenAPI generator cannot see for itself. Imported when the room is ready: classes register themselves."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from drf_spectacular.extensions import OpenApiAuthenticationExtension, OpenApiSerializerExtension


class WorkerCredential(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # the library has no types here
    target_class = "workers.api.authentication.WorkerAuthentication"
    name = "workerCredential"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "ofw_<worker id, 32 hex>_<secret>",
            "description": "Opens the endpoints of that worker and nothing else.",
        }


class StaffSessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # as above
    target_class = "workers.api.authentication.StaffSession"
    name = "staffSession"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {
            "type": "apiKey",
            "in": "cookie",
            "name": settings.SESSION_COOKIE_NAME,
            "description": "A signed-in member of staff, with the X-CSRFToken header.",
        }


class EventByKind(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]  # as above
    """An event is one of its kinds."""

    target_class = "workers.api.serializers.EventIn"

    def map_serializer(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        from workers.api.serializers import EVENT_KINDS  # the serializers must not load before the apps do

        refs = {kind: auto_schema.resolve_serializer(fields, direction).ref for kind, fields in EVENT_KINDS.items()}
        mapping = {kind: ref["$ref"] for kind, ref in refs.items()}
        return {"oneOf": list(refs.values()), "discriminator": {"propertyName": "kind", "mapping": mapping}}
