"""What all messages share: fields made once per class, plain values, bounded lists; and the body of every error."""

from __future__ import annotations

from typing import Any, ClassVar

from django.utils.functional import cached_property
from rest_framework import serializers

OPTIONAL: dict[str, Any] = {"required": False, "allow_null": True, "default": None}


class Shared(serializers.Serializer[Any]):
    """A serializer whose fields are made once per class.

    DRF copies them for every instance, at every level, which costs more than reading the message. Nothing here depends
    on the instance: no context, no partial updates.
    """

    _made: ClassVar[Any] = None

    @cached_property
    def fields(self) -> Any:
        cls = type(self)
        if "_made" not in cls.__dict__:
            cls._made = serializers.Serializer.fields.__get__(cls())  # of a bare one: it holds nobody's data
        return cls._made


class Message(Shared):
    """A message of the protocol. Unknown fields are ignored; a missing optional field and null mean: not known."""

    # What a valid message becomes: a class of `workers.reports`, called with the fields.
    shape: ClassVar[Any] = dict

    def to_internal_value(self, data: Any) -> Any:
        return self.shaped(super().to_internal_value(data))

    def shaped(self, values: dict[str, Any]) -> Any:
        return self.shape(**values)


def listed(serializer: type[serializers.Serializer[Any]], *, at_most: int, **kwargs: Any) -> Any:
    """A list of so many messages at most. `allow_null` is for the list: no message in it may be null."""
    return serializers.ListSerializer(child=serializer(), max_length=at_most, **kwargs)


class ErrorOut(Shared):
    """The body of every answer of 400 and above. Codes are stable, sentences are not."""

    code = serializers.CharField()
    detail = serializers.CharField()
    # Only a description: nothing reads the property of that name that this hides.
    errors = serializers.DictField(  # type: ignore[assignment]
        child=serializers.ListField(child=serializers.CharField()), required=False
    )
    expected_seq = serializers.IntegerField(required=False)
    proof = serializers.CharField(required=False)
