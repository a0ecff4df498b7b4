"""Reports of a worker that are refused as invalid: noted on its row, until one is taken again.

Whoever sends them is alive, and yet nothing that it says is known: its leases are not renewed, and it gets no jobs. No
retry mends that, only a person does; so it is said wherever workers are shown, with the fields that are wrong.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connection
from psycopg.types.json import Jsonb

from workers.models import Worker

FIELDS_KEPT = 5
FIELD_CHARS, SENTENCE_CHARS = 120, 200

# What a report that is taken writes.
NONE: dict[str, Any] = {"refused_since": None, "refused_errors": None}

# The same refusal again writes nothing. Nor does that of a beat that was overtaken by a newer one, or of an older
# session: what it says is over.
_NOTE = """
    UPDATE workers_worker
    SET refused_since = COALESCE(refused_since, statement_timestamp()), refused_errors = %(errors)s
    WHERE id = %(worker)s AND revoked_at IS NULL AND refused_errors IS DISTINCT FROM %(errors)s
      AND (%(session)s::int IS NULL OR (session = %(session)s AND beat <= %(beat)s))
"""


def note(
    worker_id: uuid.UUID, errors: Mapping[str, Sequence[str]], *, session: int | None = None, beat: int | None = None
) -> None:
    """Write down which fields were refused: one narrow statement. `session`, `beat`: the report's, where readable."""
    kept = [
        [_as_path(name)[:FIELD_CHARS], " ".join(sentences)[:SENTENCE_CHARS]]
        for name, sentences in list(errors.items())[:FIELDS_KEPT]
    ]
    facts: dict[str, Any] = {"worker": worker_id, "errors": Jsonb(kept), "session": session, "beat": beat}
    with connection.cursor() as cursor:
        cursor.execute(_NOTE, facts)


def told(worker: Worker) -> str:
    """Which fields are refused and why, as a part of a sentence; "" where reports are taken."""
    if worker.refused_since is None:
        return ""
    return "; ".join(f"{field}: {sentence.rstrip('.')}" for field, sentence in worker.refused_errors or ())


def sentence(worker: Worker) -> str:
    """The same with the time, for a shell and for the admin."""
    if worker.refused_since is None:
        return ""
    return f"reports refused since {worker.refused_since:%Y-%m-%d %H:%M} UTC: {told(worker)}"


def as_json(worker: Worker) -> dict[str, Any] | None:
    """For programs; None where reports are taken."""
    if worker.refused_since is None:
        return None
    return {
        "since": worker.refused_since.isoformat(),
        "errors": [{"field": field, "detail": sentence} for field, sentence in worker.refused_errors or ()],
    }


def _as_path(name: str) -> str:
    """A field as people write it: gpus.0.uuid is gpus[0].uuid."""
    return re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", name)
