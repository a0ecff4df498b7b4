"""Reads JSON bodies: bounded, strict, and never surprised.

DRF's own parser reads whatever comes, takes NaN, and lets a deeply nested or absurdly long number raise in ways that
end as a 500.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import IO, Any, NoReturn

from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser

from workers.api.errors import TooLarge

KIB = 1024
BODY_MAX_BYTES = 256 * KIB
EVENTS_BODY_MAX_BYTES = 1024 * KIB


class StrictJSONParser(BaseParser):
    """JSON in UTF-8, at most as long as the view's `body_max_bytes`. Raises TooLarge, ParseError."""

    media_type = "application/json"

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        view = (parser_context or {}).get("view")
        limit: int = getattr(view, "body_max_bytes", BODY_MAX_BYTES)
        body = stream.read(limit + 1)
        if len(body) > limit:
            raise TooLarge(limit)
        try:
            return json.loads(body.decode("utf-8"), parse_constant=_no_constant)
        except RecursionError:
            raise ParseError("The body is nested too deeply.") from None
        except ValueError:  # not UTF-8, not JSON, NaN, or a number of thousands of digits
            raise ParseError("The body is not valid JSON.") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
