"""A claim as the wire tells it: the job's spec, where its repository is, its tokens and its limits.

Nothing here is stored: a repeated claim builds the same answer from the same rows.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlsplit

from django.conf import settings
from django.db import transaction

from jobs import lifecycle, offers
from jobs.models import Job
from jobs.tokens import runtime_token, source_token
from workers import gpus, registry
from workers.errors import GpuWorkersDisabled
from workers.models import Worker
from workers.reports import ClaimRequest

DEFAULT_PORT = 7860
LIMITS = ("memory_mib", "cpus", "pids", "shm_mib", "build_timeout_s", "run_timeout_s")


def claim(worker: Worker, request: ClaimRequest, *, key: str, data_url: str) -> dict[str, Any] | None:
    """Lease the oldest fitting job to this worker and describe it; None where there is nothing for it.

    What is draining, disabled, paused or full fits nothing, so it gets None as well. `data_url`: where this worker
    reaches the data plane. Raises GpuWorkersDisabled, SupersededSession, StaleLease (the key's lease has ended).
    """
    with transaction.atomic():
        # Fresh readings first: what others use of a GPU may have changed since the last heartbeat.
        locked = registry.lock(worker.pk, session=request.session)
        gpus.check_gpus(request.gpus)
        gpus.store_gpus(locked, request.gpus, counts=False)
        offer = offers.offer_of(locked)
        if not (offer.local or offer.remote_enabled):
            raise GpuWorkersDisabled
        claimed = lifecycle.claim_for(
            offer, session=request.session, free_gpu=request.free_gpu, free_cpu=request.free_cpu, key=key
        )
    return None if claimed is None else _describe(claimed, locked, data_url=data_url)


def data_url_for(*, called_as: str, scheme: str) -> str:
    """Return where workers reach the data plane: as configured, or on the host they call us by."""
    if settings.OPENFACE_DATA_URL:
        return str(settings.OPENFACE_DATA_URL)
    host = urlsplit(f"//{called_as}").hostname or "localhost"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{settings.OPENFACE_DATA_PORT}"


def _describe(claimed: lifecycle.Claim, worker: Worker, *, data_url: str) -> dict[str, Any]:
    job, lease, spec = claimed.job, claimed.lease, claimed.job.spec
    requirement = job.requirement
    owner, repo = quote(job.owner, safe=""), quote(job.repo, safe="")
    return {
        "id": job.pk,
        "lease": lease.pk,
        "attempt": lease.attempt,
        "kind": requirement.kind,
        "mode": job.mode,
        "owner": job.owner,
        "repo": job.repo,
        "repository_id": job.repository_id,
        "revision": job.revision,
        "clone_url": f"{data_url}/git/{owner}/{repo}.git",
        "source_token": source_token(lease),
        "runtime_token": runtime_token(lease),
        "base_path": f"/run/{owner}/{repo}/",
        "port": spec.get("app_port") or DEFAULT_PORT,
        "requirements": {
            "kind": requirement.kind,
            "gpu_count": requirement.gpu_count,
            "vram_mib": requirement.vram_mib,
            "exclusive": requirement.exclusive,
            "features": requirement.features,
            # Whoever was named is this worker, or it would not have the job.
            "worker": worker.name if requirement.worker_id else None,
        },
        "gpus": claimed.gpu_uuids,
        "environment": _texts(spec.get("environment")),
        "secrets": _texts(spec.get("secrets")),
        "build_args": _texts(spec.get("build_args")),
        "limits": _limits(spec.get("limits") or {}),
        "artifacts_url": f"{data_url}/artifacts/{job.pk}" if job.mode == Job.Mode.BATCH else None,
        "lease_expires_in_s": claimed.expires_in_s,
        "sdk": spec.get("sdk") or None,
        "app_file": spec.get("app_file") or None,
        "sdk_version": spec.get("sdk_version") or None,
        "python_version": spec.get("python_version") or None,
        "startup_timeout_s": spec.get("startup_timeout_s") or None,
    }


def _limits(given: dict[str, Any]) -> dict[str, Any]:
    after = settings.OPENFACE_STOP_AFTER_DISCONNECT_SECONDS
    return {name: given.get(name) for name in LIMITS} | {"stop_after_disconnect_s": after or None}


def _texts(given: dict[str, Any] | None) -> dict[str, str]:
    return {name: str(value) for name, value in (given or {}).items()}
