"""Sessions in the database, looked up only by a key that we could have given out.

A cookie is whatever somebody sends: with a NUL in it, the look-up itself would be an error of the database. A key of
any other shape is nobody's, so its bearer is anonymous: on pages, live pages and the runtime origin alike.
"""

from __future__ import annotations

import re

from django.contrib.sessions.backends import db

_KEY = re.compile(r"[a-z0-9]{32}")  # what `get_random_string(32, …)` of Django's sessions makes


class SessionStore(db.SessionStore):
    """Django's, but for the shape of the key."""

    def _validate_session_key(self, key: str | None) -> bool:
        return key is not None and _KEY.fullmatch(key) is not None
