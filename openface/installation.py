"""Where an installation on this machine keeps its things, which ports it takes, and what its programs are told.

Everything stands under one state directory (`.openface/`): keys, the database, repositories, the workers' own
directories. Keys are made on first use and never printed.
"""

from __future__ import annotations

import os
import random
import secrets
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

DEFAULT_PORT_BASE = 8090
GATEWAYS = 2  # ports kept for workers on this machine
LOOPBACK = "127.0.0.1"


class InstallationError(RuntimeError):
    """This machine cannot run an installation as asked; the message says why and what to do."""


class Installation:
    """One state directory and one row of ports: web, data, then the gateways of workers on this machine.

    `overrides` are environment variables for all programs (shorter intervals, for instance). What the caller's own
    environment says about keys and addresses wins over what we would choose.
    """

    def __init__(
        self,
        state_dir: Path,
        *,
        port_base: int = DEFAULT_PORT_BASE,
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        self.state_dir = state_dir.absolute()
        self.port_base = port_base
        self.overrides = dict(overrides or {})

    @property
    def web_port(self) -> int:
        return self.port_base

    @property
    def data_port(self) -> int:
        return self.port_base + 1

    def gateway_port(self, number: int) -> int:
        """Return the port of the gateway of the worker with this number, counted from 0."""
        return self.port_base + 2 + number

    @property
    def web_url(self) -> str:
        """The control plane, as this machine's own programs call it."""
        return f"http://{LOOPBACK}:{self.web_port}"

    @property
    def data_url(self) -> str:
        """The data plane, as this machine's own programs call it."""
        return f"http://{LOOPBACK}:{self.data_port}"

    @property
    def public_url(self) -> str:
        """The portal, as a person's browser calls it."""
        return os.environ.get("PUBLIC_BASE_URL") or f"http://localhost:{self.web_port}"

    def prepare(self) -> None:
        """Make the state directory and the keys that are missing."""
        # Others may pass through it (the database's account must), nobody may look around in it.
        self.state_dir.mkdir(mode=0o711, parents=True, exist_ok=True)
        keys = self.state_dir / "keys"
        keys.mkdir(mode=0o700, exist_ok=True)
        for name, make in KEYS.items():
            keep_secret(keys / name.lower(), make)

    def environment(self) -> dict[str, str]:
        """Return what every program of this installation is told."""
        # The keys are not among it: settings.py finds them in the state directory, also for commands given by hand.
        return {
            "DJANGO_SETTINGS_MODULE": "openface.settings",
            "OPENFACE_STATE_DIR": str(self.state_dir),
            "PUBLIC_BASE_URL": self.public_url,
            "OPENFACE_DATA_PORT": str(self.data_port),
            "OPENFACE_DATABASE_POOL": "true",
            **self.overrides,
        }

    def check_ports(self) -> None:
        """Raise InstallationError when a port of ours is taken, with a base that would do instead."""
        taken = [port for port in self._ports(self.port_base) if not _is_free(port)]
        if taken:
            names = " and ".join(str(port) for port in taken)
            raise InstallationError(
                f"Port {names} of this machine is taken by another program. We need {self.port_base} to "
                f"{self.port_base + 1 + GATEWAYS}; PORT_BASE moves them, for example PORT_BASE={free_port_base()}."
            )

    @staticmethod
    def _ports(base: int) -> range:
        return range(base, base + 2 + GATEWAYS)


def free_port_base() -> int:
    """Return the first number of a row of ports that are all free now."""
    # Below the range from which the kernel picks ports for outgoing connections; in no order, so that two who look at
    # the same time do not find the same.
    bases = range(8190, 32000, 10)
    for base in random.sample(bases, len(bases)):
        if all(_is_free(port) for port in Installation._ports(base)):
            return base
    raise InstallationError("No row of four free ports was found on this machine.")


def keep_secret(path: Path, make: Callable[[], str]) -> str:
    """Return the secret in this file (0600); make it first when there is none."""
    with suppress(FileExistsError), open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(make() + "\n")
    return path.read_text(encoding="utf-8").strip()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # Connections of the last run that linger do not make a port taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def _named_key() -> str:
    """Return a key with the id by which a row remembers under which key it was made."""
    return f"k1:{secrets.token_hex(32)}"


KEYS: Mapping[str, Callable[[], str]] = {
    "SECRET_KEY": lambda: secrets.token_urlsafe(48),
    "OPENFACE_LEASE_KEYS": _named_key,
    "OPENFACE_ENCRYPTION_KEYS": _named_key,
}
