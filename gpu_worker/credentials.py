"""Who this worker is: the credential from enrollment, kept in the data directory with mode 0600.

Also the mark that a revocation leaves behind, so that a worker that an engine starts again and again stays quiet.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from gpu_worker.atomic import write_private
from gpu_worker.errors import ConfigError

_FORM = re.compile(r"ofw_([0-9a-f]{32})_([A-Za-z0-9_-]{43})")


@dataclass(frozen=True)
class Credential:
    text: str = field(repr=False)
    name: str = ""

    def __post_init__(self) -> None:
        if not _FORM.fullmatch(self.text):
            raise ConfigError("The stored credential is damaged; remove it and enroll this worker again.")

    @property
    def worker_id(self) -> str:
        return str(uuid.UUID(self.text.split("_", 2)[1]))

    @property
    def secret(self) -> str:
        return self.text.split("_", 2)[2]

    def prove(self, message: str) -> str:
        """Hex HMAC-SHA256 of *message* under the hash of the secret, which both sides know."""
        return hmac.new(hashlib.sha256(self.secret.encode()).digest(), message.encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True)
class Former:
    """A worker whose credential has ended. It proves nothing any more, but its id is on what is left of it."""

    worker_id: str
    name: str


class CredentialStore:
    def __init__(self, data_dir: Path) -> None:
        self._file = data_dir / "credential.json"
        self._mark = data_dir / "revoked.json"

    def load(self) -> Credential | None:
        stored = _read(self._file)
        if stored is None:
            return None
        return Credential(stored.get("credential", ""), stored.get("name", ""))

    def save(self, credential: Credential, *, token: str) -> None:
        self._mark.unlink(missing_ok=True)
        stored = {"credential": credential.text, "name": credential.name, "token_sha256": _digest(token)}
        write_private(self._file, json.dumps(stored))

    def wipe(self, *, reason: str) -> None:
        """Forget the credential and leave the mark of its end."""
        stored, was = _read(self._file) or {}, self.load()
        mark = {"reason": reason, "token_sha256": stored.get("token_sha256", "")}
        if was is not None:  # no secret: who it was, so that what is left of it can still be found
            mark |= {"worker_id": was.worker_id, "name": was.name}
        write_private(self._mark, json.dumps(mark))
        self._file.unlink(missing_ok=True)

    def former(self) -> Former | None:
        """Who this worker was until its credential ended; None: unknown, or there is a new one."""
        mark = _read(self._mark) or {}
        return Former(mark["worker_id"], mark.get("name", "")) if "worker_id" in mark else None

    def ended_by(self, token: str | None) -> str | None:
        """Why this worker must stay quiet: it was revoked, and *token* is none or the one already used."""
        mark = _read(self._mark)
        if mark is None or (token is not None and _digest(token) != mark.get("token_sha256")):
            return None
        return mark.get("reason") or "This worker was revoked."


def _read(path: Path) -> dict[str, str] | None:
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as problem:
        raise ConfigError(f"{path} cannot be read: {problem}") from problem
    if not isinstance(content, dict):
        raise ConfigError(f"{path} is damaged.")
    return {str(key): str(value) for key, value in content.items()}


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
