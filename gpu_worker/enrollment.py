"""Become a worker: exchange the one-time token for a credential, once."""

from __future__ import annotations

import hashlib
import logging
import secrets
import socket
import threading

from gpu_worker.atomic import write_private
from gpu_worker.client import ControlPlane
from gpu_worker.config import WorkerConfig
from gpu_worker.credentials import Credential, CredentialStore
from gpu_worker.errors import ConfigError, Refused

logger = logging.getLogger(__name__)


def enroll(
    config: WorkerConfig, *, gateway_url: str | None = None, closing: threading.Event | None = None
) -> Credential:
    """Exchange the token for a credential and keep it; a stored one wins. Raises ConfigError, Unreachable."""
    store = CredentialStore(config.data_dir)
    present = store.load()
    if present is not None:
        return present
    token = read_token(config)
    if token is None:
        where = f" There is no token in {config.token_file}." if config.token_file else ""
        raise ConfigError(
            "There is no credential and no enrollment token: issue one on the control plane and set "
            f"WORKER_ENROLLMENT_TOKEN_FILE.{where}"
        )
    client, nonce = control_plane(config, closing), _nonce_for(config, token)
    try:
        answer = client.enroll(token=token, nonce=nonce, hostname=socket.gethostname(), gateway_url=gateway_url)
    except Refused as refusal:
        if refusal.status in (401, 422):
            raise ConfigError(f"The enrollment was refused: {refusal.detail}") from refusal
        raise
    if config.name and config.name != answer.name:
        raise ConfigError(f"WORKER_NAME is {config.name!r}, but the token was issued for {answer.name!r}.")
    credential = Credential(answer.credential, answer.name)
    store.save(credential, token=token)
    logger.info("enrolled", extra={"action": "enrolled", "worker": credential.worker_id, "worker_name": answer.name})
    return credential


def control_plane(config: WorkerConfig, closing: threading.Event | None = None) -> ControlPlane:
    verify = config.verify_tls if isinstance(config.verify_tls, bool) else str(config.verify_tls)
    return ControlPlane(config.url, verify_tls=verify, closing=closing)


def read_token(config: WorkerConfig) -> str | None:
    """The enrollment token from its file, None where there is none. Raises ConfigError when it cannot be read."""
    if config.token_file is None:
        return None
    try:
        return config.token_file.read_text().strip() or None
    except FileNotFoundError:
        return None
    except (OSError, UnicodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it is no text"
        raise ConfigError(f"The enrollment token in {config.token_file} cannot be read: {why}.") from problem


def _nonce_for(config: WorkerConfig, token: str) -> str:
    """The nonce of this token's enrollment, kept until it succeeds: an answer that was lost is then repeated."""
    file = config.data_dir / "enrollment-nonce"
    digest = hashlib.sha256(token.encode()).hexdigest()
    try:
        known, _, nonce = file.read_text().partition(" ")
        if known == digest and nonce:
            return nonce
    except OSError:
        pass
    nonce = secrets.token_hex(16)
    write_private(file, f"{digest} {nonce}")
    return nonce
