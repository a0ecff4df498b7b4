"""Worker credentials: how they are made, read and checked, and what the server can prove with one. Pure.

A credential is `ofw_<worker id, 32 hex>_<secret>`. The secret is derived from the enrollment token and the worker's
nonce, so a repeated enrollment gives the same one and nothing usable has to be stored: the server keeps its SHA-256,
as a plain hash, because 256 random bits cannot be guessed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import uuid
from dataclasses import dataclass

TOKEN_PREFIX = "oft_"  # an enrollment token is told from a credential at a glance, and by secret scanners
TOKEN_BYTES = 32
_CREDENTIAL = re.compile(r"ofw_([0-9a-f]{32})_([A-Za-z0-9_-]{43})")
_NO_HASH = "0" * 64


@dataclass(frozen=True)
class Credential:
    """A credential taken apart. `repr` hides the secret."""

    worker_id: uuid.UUID
    secret: str

    def __repr__(self) -> str:
        return f"Credential({self.worker_id})"

    def __str__(self) -> str:
        return f"ofw_{self.worker_id.hex}_{self.secret}"


def new_token() -> str:
    """Return a fresh enrollment token; only its hash may be stored."""
    return TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def digest(text: str) -> str:
    """Return the SHA-256 of `text`, hex: the form in which tokens, nonces and secrets are kept."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def mint(worker_id: uuid.UUID, *, token: str, nonce: str) -> Credential:
    """Derive the credential that this token and nonce give to this worker. The same input gives the same output."""
    raw = hmac.new(token.encode("utf-8"), nonce.encode("utf-8"), hashlib.sha256).digest()
    return Credential(worker_id, base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii"))


def parse(text: str) -> Credential | None:
    """Take a credential apart, or return None where it does not look like one."""
    match = _CREDENTIAL.fullmatch(text)
    return None if match is None else Credential(uuid.UUID(match[1]), match[2])


def matches(credential: Credential, credential_hash: str) -> bool:
    """Whether the secret is the one whose hash is stored. Takes as long for a worker that does not exist ("")."""
    return hmac.compare_digest(digest(credential.secret), credential_hash or _NO_HASH)


def revocation_proof(worker_id: uuid.UUID, credential_hash: str) -> str:
    """Prove to the worker that it was really revoked: only who stores the hash can say this."""
    return _prove(credential_hash, f"revoked:{worker_id.hex}")


def healthz_proof(nonce: str, credential_hash: str) -> str:
    """Return what the worker's gateway answers to this nonce."""
    return _prove(credential_hash, f"healthz:{nonce}")


def _prove(credential_hash: str, message: str) -> str:
    return hmac.new(bytes.fromhex(credential_hash), message.encode("utf-8"), hashlib.sha256).hexdigest()
