"""Strict serializer fields: a wrong type is an error that names the field, never a guess.

DRF's own fields read "5", 5.0 and true as numbers and "yes" as a boolean; on a wire between two programs that hides
mistakes until the day they matter.
"""

from __future__ import annotations

import math
import re
import uuid
from typing import Any

from rest_framework import serializers
from rest_framework.fields import empty

from workers.reports import IMPOSSIBLE

SMALL = 32_767  # PostgreSQL's smallint
INT = 2**31 - 1
BIG = 2**63 - 1
SUBSTITUTE = "\x1a"  # ASCII's own "a character was here that cannot be shown"; one byte, like the NUL it replaces
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")  # PostgreSQL takes neither NUL nor half of a surrogate pair


class Text(serializers.CharField):
    """A string as it is. `clip`: text for people is never refused for its length or for a character in it.

    It is cut at so many characters, and what cannot be stored (NUL, lone surrogates) is shown as U+FFFD.
    """

    default_error_messages = {"invalid": "A string is needed."}

    def __init__(self, *, clip: int | None = None, **kwargs: Any) -> None:
        kwargs.setdefault("trim_whitespace", False)
        kwargs.setdefault("allow_blank", True)
        super().__init__(**kwargs)
        self.clip = clip

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        if self.clip is None:
            return data
        text = _UNSTORABLE.sub("\ufffd", data)
        return text if len(text) <= self.clip else text[: self.clip - 1] + "…"


class LogText(Text):
    """Text of a program: NUL, which PostgreSQL cannot store, becomes SUBSTITUTE, so that offsets stay true."""

    def to_internal_value(self, data: Any) -> str:
        return super().to_internal_value(data).replace("\x00", SUBSTITUTE)


class SnakeCase(Text):
    """A word like `disk_floor`: a code, not a sentence."""

    default_error_messages = {"pattern": "A word in snake_case is needed."}

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        if not re.fullmatch(r"[a-z][a-z0-9_]*", text):
            self.fail("pattern")
        return text


class Whole(serializers.IntegerField):
    """A whole number, not a string of one, not a float, not a boolean."""

    default_error_messages = {"invalid": "A whole number is needed."}

    def __init__(self, *, max_value: int = INT, min_value: int = 0, **kwargs: Any) -> None:
        super().__init__(max_value=max_value, min_value=min_value, **kwargs)

    def to_internal_value(self, data: Any) -> int:
        if not isinstance(data, int) or isinstance(data, bool):
            self.fail("invalid")
        return data


class Memory(Whole):
    """What a driver says of a GPU's memory, in MiB. What no memory can be is IMPOSSIBLE, and not an error:

    one mad figure must not cost the machine its heartbeat.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_value=INT, min_value=IMPOSSIBLE, **kwargs)

    def to_internal_value(self, data: Any) -> int:
        try:
            value = super().to_internal_value(data)
        except serializers.ValidationError:
            return IMPOSSIBLE
        return value if 0 <= value <= INT else IMPOSSIBLE


class Number(serializers.FloatField):
    """A finite number."""

    default_error_messages = {"invalid": "A number is needed."}

    def to_internal_value(self, data: Any) -> float:
        if isinstance(data, bool) or not isinstance(data, int | float):
            self.fail("invalid")
        try:
            value = float(data)
        except OverflowError:
            self.fail("invalid")
        if not math.isfinite(value):
            self.fail("invalid")
        return value


class Flag(serializers.BooleanField):
    """true or false."""

    default_error_messages = {"invalid": "true or false is needed."}

    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


class Id(serializers.UUIDField):
    """A UUID in its usual spelling, with dashes."""

    default_error_messages = {"invalid": "A UUID with dashes is needed."}

    def to_internal_value(self, data: Any) -> uuid.UUID:
        if not isinstance(data, str) or len(data) != 36:
            self.fail("invalid", value=data)
        try:
            return uuid.UUID(data)
        except ValueError:
            self.fail("invalid", value=data)


class Word(serializers.ChoiceField):
    """One of a closed list of strings."""

    default_error_messages = {"invalid_choice": "This is none of the known values."}

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str) or data not in self.choices:
            self.fail("invalid_choice", input=data)
        return data


class Shown(serializers.Field[Any, Any, Any, Any]):
    """Mixin for what is only shown to people: whatever cannot be read as such is not known (None), and no error.

    One mad reading hides neither the others nor the machine.
    """

    def run_validation(self, data: Any = empty) -> Any:
        try:
            return super().run_validation(data)
        except serializers.ValidationError:
            return None


class ShownText(Shown, Text):
    """Text for people, or None."""


class ShownWhole(Shown, Whole):
    """A whole number within its bounds, or None."""


class ShownNumber(Shown, Number):
    """A finite number within its bounds, or None."""
