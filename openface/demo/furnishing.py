"""What the demo puts into its database: somebody to sign in as, workers that may enroll, and sample Spaces.

Everything here can be done again at each start; what is there already stays as it is.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from django.contrib.auth import get_user_model
from django.core.management import call_command

from openface.demo.machines import Machine
from openface.installation import Installation, keep_secret
from workers import credentials, enrollment
from workers.models import Worker

ADMIN = "admin"
OWNER = "demo"  # of the sample Spaces
SAMPLES = Path(__file__).resolve().parent.parent.parent / "fixtures" / "spaces"
# The rest asks for a CPU.
_NOT_SHOWN = frozenset({"hostile"})  # for tests: it would sign the visitor out
_GPU_SAMPLES = frozenset({"gpu-diagnostic"})


def admit_admin(installation: Installation) -> str:
    """Make the account of the administrator with a password made on first use, and return the password.

    A password that somebody changed since then is left alone.
    """
    password = keep_secret(installation.state_dir / "admin_password", lambda: secrets.token_urlsafe(9))
    users = get_user_model().objects
    if not users.filter(username=ADMIN).exists():
        users.create_superuser(username=ADMIN, email="", password=password)
    return password


def admit_workers(installation: Installation, machines: Iterable[Machine]) -> None:
    """Give each machine a token, unless what it holds opens the door already."""
    (installation.state_dir / "workers").mkdir(mode=0o711, exist_ok=True)
    for machine in machines:
        directory = machine.directory(installation)
        directory.mkdir(mode=0o700, exist_ok=True)
        gateway = machine.gateway_url(installation)
        worker = Worker.objects.kept().filter(name__iexact=machine.name).first()
        if worker is not None and worker.gateway_url == gateway and _is_known(worker, directory):
            continue
        for name in ("credential.json", "revoked.json"):
            (directory / name).unlink(missing_ok=True)
        issued = enrollment.issue_token(
            machine.name, actor=None, gateway_url=gateway, local=machine.local, replace=worker is not None
        )
        _write_private(machine.token_file(installation), issued.token)


def import_samples() -> list[str]:
    """Bring the sample Spaces into the forge, new versions of them too; return their names."""
    samples = sorted(
        path for path in SAMPLES.iterdir() if (path / "README.md").exists() and path.name not in _NOT_SHOWN
    )
    for sample in samples:
        topics = "space,gpu" if sample.name in _GPU_SAMPLES else "space,cpu"
        call_command("import_space", str(sample), f"{OWNER}/{sample.name}", topics=topics, visibility="public")
    return [sample.name for sample in samples]


def _is_known(worker: Worker, directory: Path) -> bool:
    """Tell whether the credential in the worker's directory is the one that this database knows."""
    try:
        stored = json.loads((directory / "credential.json").read_text(encoding="utf-8"))
        credential = credentials.parse(str(stored["credential"]))
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return (
        credential is not None
        and worker.revoked_at is None
        and credential.worker_id == worker.pk
        and credentials.matches(credential, worker.credential_hash)
    )


def _write_private(path: Path, text: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text + "\n")
