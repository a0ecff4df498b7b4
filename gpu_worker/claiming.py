"""Ask for jobs while there is room: when a signal says so, when a place becomes free, and each poll interval."""

from __future__ import annotations

import logging
import random
import threading
import uuid
from collections.abc import Callable
from dataclasses import replace

from gpu_worker.client import ControlPlane
from gpu_worker.config import WorkerConfig
from gpu_worker.errors import CallFailed, Final, Refused, WireError
from gpu_worker.holdings import Holdings
from gpu_worker.link import Link
from gpu_worker.machine import Machine, Picture
from gpu_worker.protocol import Claim

logger = logging.getLogger(__name__)


class ClaimLoop:
    def __init__(
        self,
        client: ControlPlane,
        config: WorkerConfig,
        link: Link,
        machine: Machine,
        holdings: Holdings,
        *,
        take: Callable[[Claim], None],
        tidy: Callable[[Picture], bool],
        on_final: Callable[[Final], None],
    ) -> None:
        """*tidy* makes room on a disk that is short, and says whether a new look at the machine is worth it."""
        self._client, self._config, self._link = client, config, link
        self._machine, self._holdings = machine, holdings
        self._take, self._tidy, self._on_final = take, tidy, on_final
        self._now = threading.Event()
        self._key = str(uuid.uuid4())
        self._trouble: str | None = None

    def claim_now(self) -> None:
        self._now.set()

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self._now.wait(self._link.intervals.poll_seconds * random.uniform(0.8, 1.0))
            self._now.clear()
            try:
                while not stop.is_set() and self._claim_one():
                    pass
            except Exception:
                # the outermost net of this loop
                logger.exception("claim failed", extra={"action": "claim_failed"})

    def _claim_one(self) -> bool:
        """Try for one job; whether to try for another at once."""
        picture = self._machine.picture(self._link.intervals.heartbeat_seconds)
        if self._tidy(picture):
            picture = self._machine.look()
        gpu, cpu = self._holdings.free_slots(
            max_gpu=self._config.max_gpu_jobs if picture.gpu.gpus and picture.quiet is None else 0,
            max_cpu=self._config.max_cpu_jobs,
        )
        if not (gpu or cpu) or not self._link.may_claim():
            return False
        try:
            claim = self._client.claim(
                key=self._key, free_slots={"gpu": gpu, "cpu": cpu}, gpus=[one.wire() for one in picture.gpu.gpus]
            )
        except Final as final:
            self._on_final(final)
            return False
        except Refused as refusal:
            self._say(str(refusal))
            self._key = str(uuid.uuid4())
            return False
        except WireError as problem:
            self._say(str(problem))  # the lease of an answer we cannot read expires by itself
            self._key = str(uuid.uuid4())
            return False
        except CallFailed as problem:
            self._say(str(problem))  # keep the key: the answer may be lost and the job already ours
            return False
        self._key = str(uuid.uuid4())
        self._say(None)
        if claim is None:
            return False
        logger.info(
            "job claimed",
            extra={
                "action": "job_claimed",
                "job": claim.job,
                "lease": claim.lease,
                "space": f"{claim.owner}/{claim.repo}",
            },
        )
        if self._config.base_image:  # the claim's own arguments win
            claim = replace(claim, build_args={"BASE_IMAGE": self._config.base_image, **claim.build_args})
        self._take(claim)
        return True

    def _say(self, trouble: str | None) -> None:
        if trouble and trouble != self._trouble:
            logger.warning("no job can be claimed", extra={"action": "claim_refused", "problem": trouble})
        self._trouble = trouble
