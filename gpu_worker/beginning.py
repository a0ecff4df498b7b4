"""From the claim to a started app: source, build, the renewal of the lease, the start."""

from __future__ import annotations

from collections.abc import Mapping

from gpu_worker.cuda_requirement import unmet
from gpu_worker.errors import EngineError, EngineSilent, JobDeclined, JobFailed
from gpu_worker.executor import Prepared, Runtime
from gpu_worker.gpus import assigned_gpus
from gpu_worker.job import ENGINE_RETRY_SECONDS, Job
from gpu_worker.preparing import prepare
from gpu_worker.protocol import Claim
from gpu_worker.start_failures import explain


def begin(job: Job, claim: Claim) -> Runtime:
    """Build and start the app.

    A build goes on while the lease cannot be renewed (within its limit); the container is created only after a renewal
    that was asked for after the build ended and was granted. Raises JobFailed, JobDeclined, JobInterrupted, LeaseStale.
    """
    gpus = ", ".join(claim.gpus) or "none"
    job.say(f"revision {claim.revision} · worker {job.workshop.worker_name} · lease {claim.lease} · gpus {gpus}")
    job.enter("building")
    job.tell("building")
    prepared = _build(job, claim)
    job.record.image_id = prepared.image_id
    job.workshop.journal.save(job.record, durable=False)  # so that a clean-up by hand knows that it is wanted
    _must_suit_the_driver(job, claim, prepared.environment)
    _await_renewal(job)
    job.enter("starting")
    job.tell("starting", image_id=prepared.image_id)
    runtime = _launch(job, claim, prepared)
    job.took(runtime)
    return runtime


def _build(job: Job, claim: Claim) -> Prepared:
    report = job.report
    assert report is not None
    try:
        return prepare(
            job.workshop,
            claim,
            output=report.stream("build").write,
            cancel=job.wishes.made,
            started=job.note_child,
            patiently=job.patiently,
            suits=lambda environment: _must_suit_the_driver(job, claim, environment),
        )
    finally:
        report.stream("build").end()


def _must_suit_the_driver(job: Job, claim: Claim, environment: Mapping[str, str]) -> None:
    """The engine would refuse the start, in words for few; another worker may have a newer driver."""
    driver = job.workshop.driver()
    lacking = unmet(environment, driver) if claim.gpus else None
    if lacking is not None:
        sentence = lacking.sentence(job.workshop.worker_name, driver)
        raise JobDeclined("needs_cuda", sentence, cuda=lacking.cuda)


def _await_renewal(job: Job) -> None:
    job.renewal.wait(job.wishes, intervals=job.workshop.intervals, on_final=job.workshop.on_final)


def _launch(job: Job, claim: Claim, prepared: Prepared) -> Runtime:
    while True:
        assigned = assigned_gpus(job.workshop.gpus(), claim.gpus)
        if assigned is None:
            raise JobDeclined("gpu_gone", "An assigned GPU is not there, or not healthy, any more.")
        job.wishes.raise_if_made()
        try:
            return job.workshop.executor.launch(
                job.record, prepared, variables=claim.environment, secrets=claim.secrets, assigned=assigned
            )
        except EngineSilent as problem:
            job.note_engine(problem)
        except EngineError as problem:
            raise JobFailed("start_failed", explain(str(problem))) from problem
        job.wishes.made.wait(ENGINE_RETRY_SECONDS)
        _await_renewal(job)  # the engine may have been silent for longer than the lease lasts
